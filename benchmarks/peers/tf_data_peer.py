# SPDX-License-Identifier: Apache-2.0
"""tf.data, for data_bench. Batches are drawn inside a tf.function, so that Python has no part in
the time:

    (start)                                -> ready <versions>
    open <case> <batch> <folder> <images>  -> ok <names of ways>    forget the last case
    check <way>                            -> ok <rows> <sum>       of one pass
    run <way> <batches>                    -> ok <nanoseconds>    of a fresh iterator that is warm
    quit
"""

import glob
import os
import time

import peer

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
peer.pin(0)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

AUTOTUNE = tf.data.AUTOTUNE
COLUMNS = 10
CYCLE = BLOCK = 16
SHUFFLE_ROWS = 60000
SHUFFLE_RECORDS = 4096
WARM_UP_BATCHES, WARM_UP_SECONDS = 16, 0.15  # at least, before the clock starts

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def scaled(x, y):
    return tf.cast(x, tf.float32) / 255.0, y


def rows(batch, folder):
    """Rows of images.u8: as tutorials have it, with whole batches in the function (the advice of
    the performance guide), and with row numbers in the place of rows."""
    y = np.fromfile(folder + "/labels.u8", np.uint8).astype(np.int64)
    x = np.fromfile(folder + "/images.u8", np.uint8).reshape(y.size, -1)
    slices = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SHUFFLE_ROWS)
    images, labels = tf.constant(x), tf.constant(y)

    def gathered(index):
        return scaled(tf.gather(images, index), tf.gather(labels, index))

    return {
        "tf_map_batch": slices.map(scaled).batch(batch),
        "tf_batch_map": slices.batch(batch).map(scaled),
        "by_hand_in_tf": tf.data.Dataset.range(y.size).shuffle(SHUFFLE_ROWS).batch(batch)
                         .map(gathered),
    }


def examples(features, batch, folder):
    def parse(serialized):
        return tf.io.parse_example(serialized, features)

    records = tf.data.TFRecordDataset(folder + "/examples.tfrecord").batch(batch)
    return {"tf_parse_example": records.map(parse)}


def shuffled(features, batch, folder):
    """As the guides have it: a function for whole batches, or one for each record."""
    records = tf.data.TFRecordDataset(folder + "/examples.tfrecord").shuffle(SHUFFLE_RECORDS)

    def parse(serialized):
        return tf.io.parse_example(serialized, features)

    def parse_single(serialized):
        return tf.io.parse_single_example(serialized, features)

    return {"tf_parse_example": records.batch(batch).map(parse),
            "tf_parse_single": records.map(parse_single).batch(batch)}


def csv(batch, folder):
    file, defaults = folder + "/table.csv", [tf.float32] * COLUMNS

    def decode(lines):
        return tuple(tf.io.decode_csv(lines, [[0.0]] * COLUMNS))

    return {"tf_csv_dataset": tf.data.experimental.CsvDataset(file, defaults).batch(batch),
            "tf_decode_csv": tf.data.TextLineDataset(file).batch(batch).map(decode)}


def images(batch, folder):
    files = tf.data.Dataset.list_files(folder + "/*.jpg", shuffle=False)

    def ways(method):
        def read(file):
            image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3, dct_method=method)
            return tf.image.resize(image, (224, 224))

        return files.map(read).batch(batch)

    return {"tf_images": ways(""), "tf_images_accurate": ways("INTEGER_ACCURATE")}


def interleave(reader, pattern, batch):
    files = tf.data.Dataset.list_files(pattern, shuffle=False)

    def ways(**options):
        return files.interleave(reader, cycle_length=CYCLE, block_length=BLOCK,
                                **options).batch(batch)

    return {"tf_interleave": ways(),
            "tf_interleave_parallel": ways(num_parallel_calls=AUTOTUNE, deterministic=False)}


def pipelines(case, batch, folder):
    if case == "rows":
        return rows(batch, folder)
    if case == "examples_image":
        return examples({"image": tf.io.FixedLenFeature([], tf.string),
                         "label": tf.io.FixedLenFeature([], tf.int64)}, batch, folder)
    if case in ("examples_floats", "examples_shuffled"):
        floats = {f"f{i}": tf.io.FixedLenFeature([], tf.float32) for i in range(COLUMNS)}
        make = examples if case == "examples_floats" else shuffled
        return make(floats, batch, folder)
    if case == "csv":
        return csv(batch, folder)
    if case == "images":
        return images(batch, folder)
    if case == "interleave_records":
        return interleave(tf.data.TFRecordDataset, folder + "/*.tfrecord", batch)
    if case == "interleave_lines":
        return interleave(tf.data.TextLineDataset, folder + "/*.txt", batch)
    raise ValueError(f"unknown case {case}")


def sum_of(value):
    if value.dtype == tf.string:
        return float(np.frombuffer(b"".join(value.numpy()), np.uint8).sum(dtype=np.int64))
    return float(tf.reduce_sum(tf.cast(value, tf.float64)))


@tf.function
def draw(iterator, count):
    for _ in tf.range(count):
        next(iterator)


def options(autotune):
    result = tf.data.Options()
    result.threading.private_threadpool_size = 1
    result.threading.max_intra_op_parallelism = 1
    result.autotune.enabled = autotune
    return result


class TfData:
    """Each way also without threads of its own (`_bare`), which one core has more use for."""

    def __init__(self):
        self.batches, self.endless = {}, {}

    def open(self, words):
        self.batches, self.endless = {}, {}
        for name, batches in pipelines(words[0], int(words[1]), words[2]).items():
            endless = batches.repeat()
            self.batches[name] = self.batches[name + "_bare"] = batches
            self.endless[name] = endless.prefetch(AUTOTUNE).with_options(options(True))
            self.endless[name + "_bare"] = endless.with_options(options(False))
        return " " + " ".join(self.batches)

    def check(self, words):
        count, total = 0, 0.0
        for batch in self.batches[words[0]]:
            leaves = tf.nest.flatten(batch)
            count += int(leaves[0].shape[0])
            total += sum(sum_of(leaf) for leaf in leaves)
        return f" {count} {total!r}"

    def run(self, words):
        # Nothing runs, or is read ahead, between two samples.
        opened, iterator = time.monotonic(), iter(self.endless[words[0]])
        count, warm_up = tf.constant(int(words[1])), tf.constant(WARM_UP_BATCHES)
        draw(iterator, warm_up)
        while time.monotonic() - opened < WARM_UP_SECONDS:
            draw(iterator, warm_up)
        return f" {peer.timed(lambda: draw(iterator, count))[0]}"


def answer(data, words):
    return getattr(data, words[0])(words[1].split())


peer.serve(TfData(), f"tensorflow {tf.__version__}", answer)
