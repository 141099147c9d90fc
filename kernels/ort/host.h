// The ONNX Runtime that loaded this library: its C API, and what is missing from the headers we
// build with.
//
//   if (Status status = ConnectHost(api_base); !status) ...
//   Status status = FromOrt(Api().KernelContext_GetInput(context, 0, &value));
//
// ConnectHost is called by RegisterCustomOps before anything else; afterwards the host never
// changes. An OrtStatus from the API is turned into our Status at once, ours into an OrtStatus at
// the C border only.
#pragma once

#include <onnxruntime_c_api.h>

#include "base/error.h"

namespace liger::ort {

// Fails where the host is older than the headers.
Status ConnectHost(const OrtApiBase* base);

const OrtApi& Api();

// N of the host's release 1.N.
uint32_t HostRelease();

// Takes the status: null is success.
Status FromOrt(OrtStatus* status);

// For the C border; `api` may be that of an old host. Wrong attributes, shapes and options become
// ORT_INVALID_ARGUMENT, the rest ORT_FAIL.
OrtStatus* ToOrt(const OrtApi& api, const Error& error);

// OrtApi::GetTensorElementTypeAndShapeDataReference (API 24), or null on older hosts: the element
// type and a pointer to the runtime's own dimensions, without the allocation that the older calls
// make.
using ShapeReferenceFn = OrtStatus*(ORT_API_CALL*)(const OrtValue* value,
                                                   ONNXTensorElementDataType* type,
                                                   const int64_t** dims, size_t* rank)NO_EXCEPTION;
ShapeReferenceFn ShapeReference();

}  // namespace liger::ort
