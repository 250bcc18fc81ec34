#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds ONNX files of Cohort's against ONNX's checker and onnxruntime; run.py calls it.

    ONNX_PYTHON onnx_interop.py FOLDER

In FOLDER is what keras_interop.py left: of each case inputs (CASE.x.npy), what Cohort predicts
(CASE.predicted.npy), and CASE.onnx, or CASE.refused.txt with the reason why there is none. Each file must
be a valid model, have the input that the model in CASE.exported.keras has, and predict the same, for any
number of rows. Refused are those in REFUSED alone.
"""

import json
import pathlib
import sys
import zipfile

import numpy as np
import onnx
import onnxruntime

# Models that have a layer which is not written as ONNX, and that layer's class.
REFUSED = {
    "sounds": "MelSpectrogram",    # an STFT
    "augmented": "RandomCrop",     # of images that have another size, outside of training unchanged
    "mixed_images": "ContrastLimitedAdaptiveHistogramEqualization",  # histograms of tiles
}
TOLERANCE = 1e-5

failures = []


def input_name(path):
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))["config"]
    return config["layers"][0]["config"]["name"]


def compare(name, got, want):
    if got.shape != want.shape or not np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE):
        failures.append(f"{name}: onnxruntime predicts\n{got}\nexpected\n{want}")


def check(folder, name):
    path = folder / f"{name}.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x, want = np.load(folder / f"{name}.x.npy"), np.load(folder / f"{name}.predicted.npy")
    inputs = [i.name for i in session.get_inputs()]
    if inputs != [input_name(folder / f"{name}.exported.keras")]:
        failures.append(f"{name}: inputs {inputs}")
    for rows in (len(x), 3):
        (got,) = session.run(None, {inputs[0]: x[:rows]})
        compare(name, got, want[:rows])


def check_refused(folder, name):
    said = (folder / f"{name}.refused.txt").read_text()
    if REFUSED.get(name, "nothing") not in said:
        failures.append(f"{name}: refused: {said}")


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sorted(p.name.removesuffix(".predicted.npy") for p in folder.glob("*.predicted.npy"))
    refused = [name for name in names if (folder / f"{name}.refused.txt").exists()]
    for name in names:
        try:
            (check_refused if name in refused else check)(folder, name)
        except Exception as error:  # of the checker or of onnxruntime, which say no name
            failures.append(f"{name}: {error}")
    if left := REFUSED.keys() & set(names) - set(refused):
        failures.append(f"{sorted(left)}: said to be refused, and are not")
    print(f"{len(names) - len(refused)} models in onnxruntime {onnxruntime.__version__}, {len(refused)} "
          f"refused: {len(failures)} differences")
    sys.exit("\n".join(failures) if failures or not names else 0)


if __name__ == "__main__":
    main()
