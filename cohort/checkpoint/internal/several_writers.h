// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint that several processes write. Of values that they have spread over them
// (TrackedValue::is_spread) each writes what it has, in files of its own, if all of them find the
// folder that the chief has made:
//
//   chief makes it | all look for it | each writes its files and flushes them | the chief hears of
//   all | table of contents | rename
//
// Where a process does not find it (another disk) the chief gathers these values and writes all.
// Whoever fails or dies before the rename ends the save on all: what was there before is as it was.
#pragma once

#include <string>

#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/saved_values.h"
#include "cohort/checkpoint/saving_group.h"

namespace cohort::internal::checkpoint {

/// Reads the spread values, each as one, on every process.
/// Order: all processes that save together call it.
void gather_spread(SavedValues& values);

/// Writes the values into the chief's new checkpoint, which then lacks its name only.
/// `made`: null but on the chief. `folder`: where this process would make such a one; there the
/// chief's is looked for, too, should it have another path here.
/// Order: all processes of the group call it; a null group: this one alone.
/// Errors: as NewCheckpoint::write; FailedPrecondition where this process must not write any more
///         (base/write_guard.h).
void write_together(SavingGroup* group, NewCheckpoint* made, const std::string& folder,
                    SavedValues& values);

}  // namespace cohort::internal::checkpoint
