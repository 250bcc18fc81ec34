// SPDX-License-Identifier: Apache-2.0
//
// All of Cohort but the bridge to torch::nn modules.
#pragma once

#include "cohort/base/error.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/data/auto_shard.h"
#include "cohort/data/catalog.h"
#include "cohort/data/dataset.h"
#include "cohort/data/example.h"
#include "cohort/data/example_parser.h"
#include "cohort/data/npy.h"
#include "cohort/data/tf_record.h"
#include "cohort/gradients/gradient_tape.h"
#include "cohort/gradients/leaf_gradients.h"
#include "cohort/keras/keras.h"
#include "cohort/runtime/device.h"
#include "cohort/runtime/memory.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/tensor.h"
#include "cohort/strategy/context.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/strategy.h"
#include "cohort/values/nest.h"
#include "cohort/values/per_replica.h"
#include "cohort/variables/variable.h"
