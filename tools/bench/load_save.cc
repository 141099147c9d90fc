// The least that any program written against ONNX's protobuf classes does to a file: parse,
// serialise, write. The yardstick of tools/bench_patch.sh. External data is neither read nor moved.
//
//   load_save IN.onnx OUT.onnx

#include <fstream>
#include <iostream>

#include "onnx/onnx_pb.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: load_save IN.onnx OUT.onnx\n";
    return 2;
  }
  onnx::ModelProto model;
  std::ifstream in(argv[1], std::ios::binary);
  if (!in || !model.ParseFromIstream(&in)) {
    std::cerr << argv[1] << ": not a readable model\n";
    return 1;
  }
  std::ofstream out(argv[2], std::ios::binary | std::ios::trunc);
  if (!out || !model.SerializeToOstream(&out) || !out.flush()) {
    std::cerr << argv[2] << ": could not be written\n";
    return 1;
  }
  return 0;
}
