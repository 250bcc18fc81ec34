// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/dataset_creator.h"

namespace cohort::keras {

DataSource::DataSource(const DatasetCreator& creator) : data_(creator.recipe_) {}

}  // namespace cohort::keras
