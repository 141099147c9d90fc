// What every launch checks before it touches memory: dtypes, sizes, ranges of arguments, and
// pointers that are missing. One function per argument struct; LIGER_OK, or the first fault.
#pragma once

#include "liger/geglu.h"
#include "liger/group_norm.h"
#include "liger/layer_norm.h"
#include "liger/rms_norm.h"
#include "liger/rope.h"
#include "liger/softmax.h"
#include "liger/swiglu.h"

namespace liger {

LigerStatus Check(const LigerRmsNormArgs& args);
LigerStatus Check(const LigerLayerNormArgs& args);
LigerStatus Check(const LigerGroupNormArgs& args);
LigerStatus Check(const LigerRopeArgs& args);
LigerStatus Check(const LigerSwiGluArgs& args);
LigerStatus Check(const LigerGeGluArgs& args);
LigerStatus Check(const LigerSoftmaxArgs& args);

}  // namespace liger
