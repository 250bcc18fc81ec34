// SPDX-License-Identifier: Apache-2.0
//
// .keras and .weights.h5 files: what is saved is loaded, under any strategy, and trained on as if
// nothing had been; what Keras saves is loaded; what is no such file is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/zip_file.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/model_file.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::internal::archive::FileBytes;
using cohort::internal::archive::Hdf5Reader;
using cohort::internal::archive::Hdf5Writer;
using cohort::internal::archive::ZipReader;
using cohort::internal::checkpoint::AtomicFile;
using cohort::internal::checkpoint::InputFile;
using testing::expect_error;

std::string text_of(const std::string& path) { return InputFile("test", path).read_all(1 << 24); }

class ModelFiles : public testing::FolderTest {
 protected:
  std::string file() const { return path("m.keras"); }
  std::string weights() const { return path("m.weights.h5"); }
  void put(const std::string& name, const std::string& bytes) const {
    AtomicFile out("test", path(name));
    out.file().write(bytes.data(), bytes.size());
    out.commit();
  }
};

const Tensor& inputs() {
  static const Tensor x = arange(24, kFloat32).reshape({6, 4}) / 24;
  return x;
}
const Tensor& labels() {
  static const Tensor y = inputs().sum(1, true) * 0.5;
  return y;
}

Sequential compiled(const Optimizer& optimizer) {
  Sequential model({InputLayer({4}), Dense(3, {.activation = "tanh"}), BatchNormalization(),
                    Activation("relu"), Dense(1)});
  model.compile({.optimizer = optimizer, .loss = "mse", .metrics = {"mae"}});
  return model;
}

std::vector<double> losses(Model& model, int steps) {
  std::vector<double> out;
  for (int i = 0; i < steps; ++i) {
    out.push_back(model.train_on_batch(inputs(), labels()).number("loss"));
  }
  return out;
}

Tensor predicted(Model& model) { return model.predict(inputs(), {.verbose = Verbose::kSilent}); }

TEST_F(ModelFiles, ATrainedModelTrainsOnWithTheSameBits) {
  const std::vector<std::function<Optimizer()>> optimizers = {
      [] { return SGD(); },
      [] { return SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}); },
      [] { return Adam({.amsgrad = true}); },
      [] { return AdamW({.learning_rate = ExponentialDecay(0.1, 2, 0.5)}); },
      [] { return RMSprop({.momentum = 0.5, .centered = true}); },
      [] { return Adagrad(); },
      [] { return Adadelta(); },
      [] { return Adamax(); },
      [] { return Nadam(); },
      [] { return Ftrl(); },
      [] { return Lion(); },
      [] { return Adam({.use_ema = true}); },
      [] { return Adam({.gradient_accumulation_steps = 2}); }};
  for (const auto& make : optimizers) {
    Sequential model = compiled(make());
    SCOPED_TRACE(model.optimizer().name());
    losses(model, 3);
    model.save(file());
    const auto loaded = load_model(file());
    EXPECT_EQ(loaded->optimizer().get_config(), model.optimizer().get_config());
    EXPECT_TRUE(predicted(*loaded).equal(predicted(model)));
    EXPECT_EQ(losses(*loaded, 3), losses(model, 3));
    EXPECT_TRUE(predicted(*loaded).equal(predicted(model)));
    EXPECT_EQ(loaded->optimizer().iterations().value().item<int64_t>(),
              model.optimizer().iterations().value().item<int64_t>());
  }
}

// By two callbacks, say, of which each has a model.
TEST_F(ModelFiles, AreWrittenByManyThreadsAtOnce) {
  std::vector<Sequential> models;
  for (int i = 0; i < 4; ++i) models.push_back(compiled(SGD()));
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([this, i, &model = models[static_cast<std::size_t>(i)]] {
      for (int times = 0; times < 5; ++times) {
        EXPECT_NO_THROW(model.save(path(str_cat(i, ".keras"))));
        EXPECT_NO_THROW(model.save(file()));  // of all
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (int i = 0; i < 4; ++i) {
    const auto loaded = load_model(path(str_cat(i, ".keras")));
    EXPECT_TRUE(predicted(*loaded).equal(predicted(models[static_cast<std::size_t>(i)])));
  }
  load_model(file());
}

TEST_F(ModelFiles, KeepModelsWithoutWeights) {
  const KerasTensor x = Input({4});
  Model drawn(x, Rescaling(2)(x));
  drawn.save(file());
  EXPECT_TRUE((*load_model(file()))(inputs()).equal(inputs() * 2));
  drawn.save_weights(weights());
  drawn.load_weights(weights());
  EXPECT_TRUE(drawn.get_weights().empty());
  Sequential row({InputLayer({4}), Rescaling(3)});
  row.save(file());
  EXPECT_TRUE((*load_model(file()))(inputs()).equal(inputs() * 3));
  expect_error<FailedPrecondition>({"expected a built model"},
                                   [&] { Sequential({Rescaling(3)}).save(file()); });
}

TEST_F(ModelFiles, LiveUnderWhicheverStrategyTheyAreLoadedIn) {
  Sequential model = compiled(Adam());
  losses(model, 2);
  model.save(file());
  const Tensor expected = predicted(model);
  const MirroredStrategy two(std::vector<Device>{"CPU:0", "CPU:1"});
  const auto scope = two.scope();
  const auto loaded = load_model(file());
  EXPECT_TRUE(predicted(*loaded).allclose(expected, 1e-5, 1e-6));
  loaded->save(path("two.keras"));
  EXPECT_TRUE(predicted(*load_model(path("two.keras"))).allclose(expected, 1e-5, 1e-6));
}

TEST_F(ModelFiles, HaveKerassLayout) {
  const auto inner =
      std::make_shared<Sequential>(std::vector<Layer>{Dense(3), BatchNormalization()});
  Sequential model({InputLayer({2}), Dense(3), inner, Dense(1, {.name = "out"})});
  model.compile({.optimizer = SGD({.momentum = 0.9}), .loss = "mse"});
  model.save(file());
  const ZipReader archive("test", file());
  EXPECT_EQ(archive.names(),
            (std::vector<std::string>{"config.json", "metadata.json", "model.weights.h5"}));
  EXPECT_EQ(archive.read("config.json").view(), model.to_json());
  std::string paths;
  const Hdf5Reader weights_of("test", "m", archive.read("model.weights.h5"));
  for (const auto& array : weights_of.arrays()) paths += array.first + " ";
  EXPECT_EQ(paths,
            "layers/dense/vars/0 layers/dense/vars/1 layers/dense_1/vars/0 layers/dense_1/vars/1 "
            "layers/sequential/layers/batch_normalization/vars/0 "
            "layers/sequential/layers/batch_normalization/vars/1 "
            "layers/sequential/layers/batch_normalization/vars/2 "
            "layers/sequential/layers/batch_normalization/vars/3 "
            "layers/sequential/layers/dense/vars/0 layers/sequential/layers/dense/vars/1 "
            "optimizer/vars/0 optimizer/vars/1 optimizer/vars/2 optimizer/vars/3 "
            "optimizer/vars/4 optimizer/vars/5 optimizer/vars/6 optimizer/vars/7 "
            "optimizer/vars/8 optimizer/vars/9 ");
}

TEST_F(ModelFiles, OfKerasLoadAndTrainOn) {
  const std::string golden = COHORT_GOLDEN_FOLDER;
  const Config numbers = Config::parse_json(text_of(golden + "/trained.json"));
  const auto read = [&](const char* name, const Shape& shape) {
    std::vector<double> values;
    for (const Config& value : numbers.at(name).list()) values.push_back(value.number());
    return from_vector<double>(values, shape).to(kFloat32);
  };
  const Tensor x = read("x", {4, 3}), y = read("y", {4, 2});
  const auto model = load_model(golden + "/trained.keras");
  const Tensor got = model->predict(x, {.verbose = Verbose::kSilent});
  EXPECT_TRUE(got.allclose(read("predicted", {4, 2}), 1e-5, 1e-6)) << got;
  EXPECT_EQ(model->optimizer().iterations().value().item<int64_t>(), 3);
  for (const Config& loss : numbers.at("losses").list()) {
    EXPECT_NEAR(model->train_on_batch(x, y).number("loss"), loss.number(), 1e-5 * loss.number());
  }
  const auto plain = load_model(golden + "/trained.keras", {.compile = false});
  EXPECT_FALSE(plain->compiled());
  plain->load_weights(golden + "/trained.keras");
  EXPECT_TRUE(plain->predict(x, {.verbose = Verbose::kSilent}).allclose(got));
}

// Real Keras saved it before its first step: the LossScaleOptimizer has its numbers, the one within
// has none yet.
TEST_F(ModelFiles, OfKerasWithAScaledOptimizerThatMadeNoStep) {
  const std::string golden = COHORT_GOLDEN_FOLDER;
  const auto model = load_model(golden + "/untrained_scaled.keras");
  EXPECT_EQ(model->optimizer().base().class_name(), "LossScaleOptimizer");
  EXPECT_EQ(model->optimizer().serialize().at("config").number("initial_scale"), 256);
  const Tensor x = arange(48, kFloat64).sin().reshape({12, 4});
  model->train_on_batch(x, x.sum(1, true));
  EXPECT_EQ(model->optimizer().iterations().value().item<int64_t>(), 1);
}

void unpack(const std::string& archive, const std::filesystem::path& folder) {
  const ZipReader from("test", archive);
  for (const std::string& name : from.names()) {
    const std::filesystem::path to = folder / name;
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to, std::ios::binary) << from.read(name).view();
  }
}

// What Keras writes by zipped=False has the members of an archive, as files.
TEST_F(ModelFiles, InFoldersAreOpened) {
  namespace fs = std::filesystem;
  const std::string trained = std::string(COHORT_GOLDEN_FOLDER) + "/trained.keras";
  unpack(trained, path("net"));
  const Tensor x = arange(12, kFloat32).sin().reshape({4, 3}), y = x.narrow(1, 0, 2);
  const auto packed = load_model(trained), model = load_model(path("net"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model->train_on_batch(x, y).number("loss"),
              packed->train_on_batch(x, y).number("loss"));
  }
  EXPECT_FALSE(load_model(path("net"), {.compile = false})->compiled());

  const std::string with_assets = std::string(COHORT_GOLDEN_FOLDER) + "/text_model.keras";
  unpack(with_assets, path("texts"));
  load_model(path("texts/"))->save(file());
  load_model(with_assets)->save(path("packed.keras"));
  const ZipReader got("test", file()), expected("test", path("packed.keras"));
  EXPECT_EQ(got.names(), expected.names());
  for (const std::string& name : got.names()) {
    if (name == "metadata.json" || name == "model.weights.h5") continue;  // have times
    EXPECT_EQ(got.read(name).view(), expected.read(name).view()) << name;
  }

  put("net/config.json", "{");
  expect_error<DataLoss>({"config.json is damaged"}, [&] { load_model(path("net")); });

  const auto expect_refused = [&](const std::string& text) {
    expect_error<InvalidArgument>({"[load_model] expected ", text},
                                  [&] { load_model(path("net")); });
  };
  fs::rename(path("net") + "/model.weights.h5", path("net") + "/model.weights.npz");
  expect_error<Unimplemented>({"got model.weights.npz"}, [&] { load_model(path("net")); });
  fs::remove(path("net") + "/model.weights.npz");
  expect_refused("without model.weights.h5");
  fs::remove(path("net") + "/config.json");
  expect_refused("without config.json");
  fs::remove_all(path("net"));
  expect_refused("or the folder of a model");
}

// Programs that fetch models keep their files elsewhere, and leave links.
TEST_F(ModelFiles, InFoldersMayBeLinks) {
  namespace fs = std::filesystem;
  const std::string packed = std::string(COHORT_GOLDEN_FOLDER) + "/text_model.keras";
  unpack(packed, path("kept"));
  for (const auto& entry : fs::recursive_directory_iterator(path("kept"))) {
    const fs::path there = path("texts") / entry.path().lexically_relative(path("kept"));
    fs::create_directories(there.parent_path());
    if (!entry.is_directory()) fs::create_symlink(entry.path(), there);
  }
  load_model(path("texts"))->save(file());
  load_model(packed)->save(path("packed.keras"));
  EXPECT_EQ(ZipReader("test", file()).names(), ZipReader("test", path("packed.keras")).names());
  const fs::path assets = path("texts") + "/assets";
  fs::create_symlink(path("nowhere"), assets / "more.txt");
  expect_error<Error>({"[load_model] ", "more.txt"}, [&] { load_model(path("texts")); });
  fs::remove_all(assets);
  put("texts/assets", "");
  expect_error<DataLoss>({"[load_model] expected a folder, got a file"},
                         [&] { load_model(path("texts")); });
}

TEST_F(ModelFiles, OfWeightsHaveTheOptimizersState) {
  Sequential model = compiled(Adam());
  losses(model, 2);
  model.save_weights(weights());
  const Tensor before = predicted(model);
  Sequential fresh = compiled(Adam());  // not built: the weights alone
  fresh.load_weights(weights());
  EXPECT_TRUE(predicted(fresh).equal(before));
  EXPECT_EQ(fresh.optimizer().iterations().value().item<int64_t>(), 0);
  Sequential begun = compiled(Adam());
  losses(begun, 1);
  begun.load_weights(weights());
  EXPECT_EQ(losses(begun, 2), losses(model, 2));
  Sequential other = compiled(SGD());
  losses(other, 1);
  other.load_weights(weights());
  EXPECT_TRUE(predicted(other).equal(before));
  EXPECT_EQ(other.optimizer().iterations().value().item<int64_t>(), 1);
}

// Before its first step Keras's optimizer has its count and rate alone, and a LossScaleOptimizer
// also those of the one inside: there is no state that could get lost.
TEST_F(ModelFiles, OfKerasSaveAScaledOptimizerBeforeItsFirstStep) {
  Sequential model = compiled(LossScaleOptimizer(Adam({.learning_rate = 0.5})));
  const auto write = [&](int64_t steps) {
    const Variable count(scalar(steps, kInt64), {.name = "iteration", .trainable = false});
    const Variable rate(scalar(0.5, kFloat32), {.name = "learning_rate", .trainable = false});
    std::vector<WeightGroup> groups = model.weight_groups();
    groups.push_back({"optimizer", "loss_scale_optimizer", {count, rate, count, rate}});
    groups.push_back({"optimizer/inner_optimizer", "adam", {count, rate}});
    internal::write_model_file(file(), model.serialize().to_json(),
                               internal::hdf5_of(groups, internal::read_values(groups)));
  };
  write(0);
  const auto read = load_model(file());
  EXPECT_TRUE(predicted(*read).equal(predicted(model)));
  EXPECT_EQ(read->optimizer().base().class_name(), "LossScaleOptimizer");
  EXPECT_EQ(losses(*read, 2), losses(model, 2));
  write(3);  // without the moments of its steps
  expect_error<InvalidArgument>({"optimizer: 4 values in the file"}, [&] { load_model(file()); });
}

// A stateful layer's states are none of Keras's weights, and its batch is one that Keras has to be
// told.
TEST_F(ModelFiles, OfStatefulLayersHaveTheirBatchAndNotTheirStates) {
  const KerasTensor x = Input({3, 2}, {.batch_size = 2});
  const auto make = [&] { return Model(x, LSTM(2, {.stateful = true, .name = "lstm"})(x)); };
  Model model = make();
  model.save_weights(weights());
  const Tensor rows = arange(12, kFloat32).reshape({2, 3, 2}) / 12;
  const Tensor first = model(rows);
  EXPECT_FALSE(model(rows).equal(first));
  model.load_weights(weights());
  model.save(file());
  const Config layer = model.serialize().at("config").at("layers").list().at(1);
  EXPECT_EQ(layer.at("build_config").at("input_shape"), Config(Config::List{2, 3, 2}));
  std::string paths;
  const Hdf5Reader saved("test", "m", ZipReader("test", file()).read("model.weights.h5"));
  for (const auto& array : saved.arrays()) paths += array.first + " ";
  EXPECT_EQ(paths, "layers/lstm/cell/vars/0 layers/lstm/cell/vars/1 layers/lstm/cell/vars/2 ");
  const auto read = load_model(file());
  EXPECT_TRUE((*read)(rows).equal(first));
  EXPECT_EQ(read->to_json(), model.to_json());
}

struct Own : Model {
  Dense hidden = add("hidden", Dense(4)), out = add("out", Dense(1));
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(hidden(x, args), args); }
};

TEST_F(ModelFiles, OfClassesThatSayNotWhatTheyAreMadeWithAreWeights) {
  Own model;
  model(inputs());
  expect_error<Unimplemented>({"Own"}, [&] { model.save(file()); });
  EXPECT_TRUE(names().empty());
  model.save_weights(weights());
  std::string paths;
  const std::string bytes = text_of(weights());
  FileBytes image(bytes.size());
  bytes.copy(image.data.get(), bytes.size());
  const Hdf5Reader file_of("test", "m", std::move(image));
  for (const auto& array : file_of.arrays()) paths += array.first + " ";
  EXPECT_EQ(paths, "hidden/vars/0 hidden/vars/1 layers/dense_1/vars/0 layers/dense_1/vars/1 ");
  Own other;
  other(inputs());
  other.load_weights(weights());
  EXPECT_TRUE(other(inputs()).equal(model(inputs())));
}

TEST_F(ModelFiles, ThatDoNotFitListTheDifferences) {
  Sequential({InputLayer({4}), Dense(3), Dense(2), Dense(2)}).save_weights(weights());
  Sequential other({InputLayer({4}), Dense(3), Dense(5, {.use_bias = false})});
  const std::vector<Tensor> before = other.get_weights();
  expect_error<InvalidArgument>(
      {"[load_weights] expected the weights of", "m.weights.h5",
       "layers/dense_1: 2 values in the file, 1 in the model", "not in the model: layers/dense_2"},
      [&] { other.load_weights(weights()); });
  Sequential wide({InputLayer({4}), Dense(3), Dense(5, {.name = "wide"}), Dense(2)});
  expect_error<InvalidArgument>({"layers/dense_1/vars/0 (wide/kernel): float32[3, 2] in the file, "
                                 "float32[3, 5] in the model"},
                                [&] { wide.load_weights(weights()); });
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(other.get_weights()[i].equal(before[i]));
  }
}

TEST_F(ModelFiles, OfOtherTypesAreConverted) {
  Hdf5Writer out;
  out.add_group("layers/dense/vars", "dense");
  out.add("layers/dense/vars/0", ones({4, 2}, kFloat64) / 3);
  out.add("layers/dense/vars/1", ones({2}, kBFloat16) / 3);
  const FileBytes bytes = std::move(out).finish();
  put("m.weights.h5", std::string(bytes.view()));
  Sequential model({InputLayer({4}), Dense(2)});
  model.load_weights(weights());
  EXPECT_TRUE(model.get_weights()[0].equal(ones({4, 2}) / 3));
  EXPECT_TRUE(model.get_weights()[1].equal((ones({2}, kBFloat16) / 3).to(kFloat32)));
}

TEST_F(ModelFiles, ThatAreDamagedAreRefusedWithTheirName) {
  Sequential model = compiled(Adam());
  losses(model, 1);
  model.save(file());
  const std::string whole = text_of(file());
  for (const double part : {0.0, 0.3, 0.9}) {
    const auto bytes = static_cast<std::size_t>(part * static_cast<double>(whole.size()));
    put("cut.keras", whole.substr(0, bytes));
    expect_error<DataLoss>({"[load_model] ", "cut.keras"}, [&] { load_model(path("cut.keras")); });
  }
  const auto write = [&](const std::string& config) {
    AtomicFile out("test", path("bad.keras"));
    cohort::internal::archive::write_zip("test", out.file(), {{"config.json", config}});
    out.commit();
  };
  write("{");
  expect_error<DataLoss>({"has no \"model.weights.h5\""}, [&] { load_model(path("bad.keras")); });
  expect_error<InvalidArgument>({"ends with .keras"}, [&] { load_model(path("m.h5")); });
  expect_error(ErrorCode::kNotFound, {"none.keras"}, [&] { load_model(path("none.keras")); });
}

// A few bytes must not make a process ask for all memory.
TEST_F(ModelFiles, WhoseConfigIsWrongAreRefusedWithTheirName) {
  compiled(Adam()).save(file());
  const ZipReader archive("test", file());
  const auto expect = [&](const char* from, const std::string& to, const char* told) {
    std::string config(archive.read("config.json").view());
    const std::size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, std::string_view(from).size(), to);
    AtomicFile out("test", path("bad.keras"));
    const FileBytes weights = archive.read("model.weights.h5");
    cohort::internal::archive::write_zip(
        "test", out.file(), {{"config.json", config}, {"model.weights.h5", weights.view()}});
    out.commit();
    expect_error<InvalidArgument>({"[load_model] ", "bad.keras: its config.json: ", told},
                                  [&] { load_model(path("bad.keras")); });
  };
  expect(R"("units": 3)", R"("units": "three")", "[Dense.from_config] units: [config] expected");
  expect(R"("units": 3)", R"("units": 4000000000000)", "for which the file is too small");
  expect(R"("batch_shape": [null, 4])", R"("batch_shape": [])", "that begins with the batch");
}

TEST_F(ModelFiles, AreWrittenWholeOrNotAtAll) {
  Sequential model = compiled(Adam());
  losses(model, 1);
  model.save(file());
  const std::string before = text_of(file());
  losses(model, 1);
  EXPECT_THROW(model.save(path("no/such/folder/m.keras")), Error);
  expect_error<InvalidArgument>({"ends with .keras"}, [&] { model.save(path("m.h5")); });
  expect_error<InvalidArgument>({"save() writes whole models"},
                                [&] { model.save_weights(path("m.keras")); });
  EXPECT_EQ(text_of(file()), before);
  model.save(file());
  EXPECT_NE(text_of(file()), before);
  EXPECT_EQ(names(), std::vector<std::string>{"m.keras"});
}

TEST_F(ModelFiles, ThatModelCheckpointWritesGoOn) {
  Sequential model = compiled(Adam());
  model.fit(inputs(), labels(),
            {.epochs = 2,
             .batch_size = 3,
             .callbacks = {ModelCheckpoint(path("{epoch}.keras")),
                           ModelCheckpoint(path("{epoch}.weights.h5"))},
             .verbose = Verbose::kSilent});
  EXPECT_EQ(names(),
            (std::vector<std::string>{"1.keras", "1.weights.h5", "2.keras", "2.weights.h5"}));
  const auto loaded = load_model(path("2.keras"));
  EXPECT_EQ(loaded->optimizer().iterations().value().item<int64_t>(), 4);
  EXPECT_TRUE(predicted(*loaded).equal(predicted(model)));
  EXPECT_FALSE(predicted(*load_model(path("1.keras"))).equal(predicted(model)));
  loaded->load_weights(path("1.weights.h5"));
  EXPECT_EQ(loaded->optimizer().iterations().value().item<int64_t>(), 2);
}

}  // namespace
}  // namespace cohort::keras
