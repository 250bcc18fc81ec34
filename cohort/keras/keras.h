// SPDX-License-Identifier: Apache-2.0
//
// All of Cohort's Keras.
#pragma once

#include "cohort/keras/activations.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/dataset_creator.h"
#include "cohort/keras/initializers.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/model.h"
#include "cohort/keras/modules.h"
#include "cohort/keras/operations.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/plot_model.h"
#include "cohort/keras/regularizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/text_input.h"
#include "cohort/keras/train_and_evaluate.h"
#include "cohort/keras/utils.h"
