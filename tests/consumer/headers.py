#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which installed headers have no public name and are not on the list that says why.

    headers.py INCLUDE_FOLDER

A header is installed because a public one includes it. One that declares nothing that programs use
is a detail that a declaration of its class, or another file, may keep at home: whoever adds one to
the list has tried.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docs"))
from public_names import code_of, names_in  # noqa: E402

# Without a public name, and why they have to be there.
NEEDED = {
    "cohort/base/callable.h": "constraints of templates' parameters",
    "cohort/base/check.h": "macros",
    "cohort/base/function_ref.h": "parameters by value",
    "cohort/base/handle.h": "held(), in templates",
    "cohort/base/mutex.h": "members by value",
    "cohort/collectives/group_collectives.h": "leaves of nests, in templates",
    "cohort/collectives/worker_layout.h": "turns of reductions, in templates",
    "cohort/coordinator/internal/call_codec.h": "arguments and results, in templates",
    "cohort/coordinator/internal/remote_result.h": "RemoteValue, a template",
    "cohort/coordinator/internal/resource_handle.h": "PerWorkerValues, a template",
    "cohort/data/core/internal/function_adapter.h": "functions of datasets, in templates",
    "cohort/data/core/internal/range_iterator.h": "begin() and end() of datasets",
    "cohort/data/internal/dataset_templates.h": "verbs of Dataset that are templates",
    "cohort/keras/internal/device_constant.h": "members by value",
    "cohort/keras/internal/shape_of_training.h": "a base of a layer's class",
    "cohort/keras/layers/internal/stored_extras.h": "a base of layers' classes",
    "cohort/keras/torch_layer.h": "TorchModule, a template",
    "cohort/rpc/payload.h": "encoded tensors, in call_codec.h",
    "cohort/runtime/meeting.h": "merge(), a template",
    "cohort/runtime/step_draws.h": "a base of RandomSeeds",
    "cohort/runtime/thread_context.h": "which replica this is, inline: it is asked at each use",
    "cohort/strategy/internal/arguments.h": "what run() gives replicas, in templates",
    "cohort/strategy/internal/call.h": "run(), a template",
    "cohort/strategy/internal/collective.h": "collectives over nests, in templates",
    "cohort/strategy/internal/local_strategy.h": "the base of strategies of one's own",
    "cohort/strategy/internal/reduce.h": "reductions of nests, in templates",
    "cohort/strategy/internal/update.h": "update(), a template",
    "cohort/values/internal/components.h": "PerReplica, a template",
    "cohort/values/internal/nest_parts.h": "nests, in templates",
    "cohort/values/internal/print.h": "texts of values, in templates",
    "cohort/values/regroup.h": "results of replicas, in templates",
    "cohort/variables/leaf.h": "VariableImpl's",
    "cohort/variables/parameter_store.h": "what StrategyExtended gives, to derive from it",
    "cohort/variables/variable_impl.h": "update(), a template",
}


def is_named(path, text):
    return "/internal/" not in path and any(names_in(text))


def main(folder):
    unnamed = set()
    for file in sorted(folder.rglob("*.h")):
        path = file.relative_to(folder).as_posix()
        text = code_of(file.read_text())
        consists_of_includes = path not in NEEDED and not re.search(r"\S", text)
        if path.startswith("cohort/") and not consists_of_includes and not is_named(path, text):
            unnamed.add(path)
    for path in sorted(unnamed - set(NEEDED)):
        print(f"{path} is installed and has no public name: who includes it can declare what it "
              "needs instead, or tests/consumer/headers.py says why not")
    for path in sorted(set(NEEDED) - unnamed):
        print(f"{path} is not installed, or has a public name: it needs no line in "
              "tests/consumer/headers.py")
    return unnamed != set(NEEDED)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
