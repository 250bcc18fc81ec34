// SPDX-License-Identifier: Apache-2.0
//
// The classes of metrics, for the table that configs are read by.
#pragma once

namespace cohort::keras::internal {

class ClassTable;
void add_means(ClassTable& table);
void add_class_accuracies(ClassTable& table);
void add_confusion_metrics(ClassTable& table);
void add_function_metrics(ClassTable& table);
void add_overlap_metrics(ClassTable& table);

}  // namespace cohort::keras::internal
