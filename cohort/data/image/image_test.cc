// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG images and their sizes; the numbers of "TensorFlow" tests are TensorFlow 2.21's.
#include "cohort/data/image/image.h"

#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <cmath>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/data/image/test_images.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::picture;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

Bytes pixels(const Tensor& image) { return to_vector<uint8_t>(image); }

/// Two sums that tell images apart.
std::pair<int64_t, int64_t> sums(const Tensor& image) {
  int64_t plain = 0, weighted = 0, i = 0;
  for (uint8_t value : pixels(image)) {
    plain += value;
    weighted += value * (i++ % 1009);
  }
  return {plain, weighted};
}
using Sums = std::pair<int64_t, int64_t>;

/// What a test wants of a PNG file that encode_png does not write.
struct PngKind {
  int type = PNG_COLOR_TYPE_GRAY;
  int depth = 8;
  int interlace = PNG_INTERLACE_NONE;
  std::vector<png_color> palette = {};
  Bytes palette_alpha = {};
  int transparent_gray = -1;
  png_fixed_point gamma = 0;  ///< 0: no gAMA chunk.
  bool srgb = false;
};

void append_bytes(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))
      ->append(reinterpret_cast<const char*>(bytes), count);
}

/// `rows` as the file stores them.
std::string png_file(uint32_t width, const std::vector<Bytes>& rows, const PngKind& kind) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, append_bytes, nullptr);
  png_set_IHDR(png, info, width, static_cast<uint32_t>(rows.size()), kind.depth, kind.type,
               kind.interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  }
  if (kind.gamma > 0) png_set_gAMA_fixed(png, info, kind.gamma);
  if (kind.srgb) png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_color_16 gray{};
  gray.gray = static_cast<uint16_t>(kind.transparent_gray);
  if (kind.transparent_gray >= 0) png_set_tRNS(png, info, nullptr, 0, &gray);
  if (!kind.palette_alpha.empty()) {
    png_set_tRNS(png, info, kind.palette_alpha.data(), static_cast<int>(kind.palette_alpha.size()),
                 nullptr);
  }
  std::vector<Bytes> copy = rows;
  std::vector<png_bytep> pointers;
  pointers.reserve(copy.size());
  for (Bytes& row : copy) pointers.push_back(row.data());
  png_write_info(png, info);
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

TEST(Png, RoundTripsAllChannels) {
  for (int64_t channels = 1; channels <= 4; ++channels) {
    const Tensor image = picture(13, 9, channels);
    for (int level : {0, 1, 9}) {
      EXPECT_EQ(pixels(decode_png(encode_png(image, level))), pixels(image)) << channels;
    }
    EXPECT_EQ(shape_of(decode_image(encode_png(image))), (Shape{13, 9, channels}));
  }
}

TEST(Png, ChannelsAreMadeAndLeftOut) {
  const std::string gray = encode_png(from_vector<uint8_t>({10, 250}, {1, 2, 1}));
  const std::string gray_alpha = encode_png(from_vector<uint8_t>({10, 1, 250, 2}, {1, 2, 2}));
  const std::string rgb = encode_png(from_vector<uint8_t>({255, 0, 0, 0, 255, 0}, {1, 2, 3}));
  const std::string rgba = encode_png(from_vector<uint8_t>({0, 0, 255, 9, 7, 7, 7, 0}, {1, 2, 4}));
  const auto as = [](const std::string& bytes, int channels) {
    return pixels(decode_png(bytes, {.channels = channels}));
  };
  EXPECT_EQ(as(gray, 2), (Bytes{10, 255, 250, 255}));
  EXPECT_EQ(as(gray, 3), (Bytes{10, 10, 10, 250, 250, 250}));
  EXPECT_EQ(as(gray, 4), (Bytes{10, 10, 10, 255, 250, 250, 250, 255}));
  EXPECT_EQ(as(gray_alpha, 1), (Bytes{10, 250}));
  EXPECT_EQ(as(gray_alpha, 4), (Bytes{10, 10, 10, 1, 250, 250, 250, 2}));
  EXPECT_EQ(as(rgb, 1), (Bytes{76, 149}));
  EXPECT_EQ(as(rgb, 4), (Bytes{255, 0, 0, 255, 0, 255, 0, 255}));
  EXPECT_EQ(as(rgba, 2), (Bytes{29, 9, 7, 0}));
  EXPECT_EQ(as(rgba, 3), (Bytes{0, 0, 255, 7, 7, 7}));
  EXPECT_EQ(error_text<InvalidArgument>([&] { as(gray, 5); }),
            "[decode_png] expected channels of 0, 1, 2, 3 or 4, got 5");
}

// tf.io.decode_png's numbers.
TEST(Png, GammaCountsWhereColorBecomesGray) {
  const Bytes colors = {10, 200, 30, 250, 120, 60, 0, 0, 255, 255, 0, 0, 0, 255, 0, 90, 90, 90};
  const auto gray = [&](PngKind kind) {
    kind.type = PNG_COLOR_TYPE_RGB;
    const std::string file = png_file(6, {colors}, kind);
    EXPECT_EQ(pixels(decode_png(file)), colors) << "colors are as stored";
    return pixels(decode_png(file, {.channels = 1}));
  };
  EXPECT_EQ(gray({}), (Bytes{123, 152, 29, 76, 149, 90}));
  EXPECT_EQ(gray({.gamma = 45455}), (Bytes{157, 169, 95, 147, 200, 90}));
  EXPECT_EQ(gray({.gamma = 100000}), (Bytes{123, 152, 29, 76, 149, 90}));
  EXPECT_EQ(gray({.gamma = 220000}), (Bytes{94, 145, 2, 18, 79, 90}));
  EXPECT_EQ(gray({.srgb = true}), (Bytes{157, 169, 95, 147, 200, 90}));
}

TEST(Png, PalettesAndTheirTransparency) {
  PngKind kind{
      .type = PNG_COLOR_TYPE_PALETTE, .depth = 4, .palette = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}};
  const std::vector<Bytes> rows = {{0x01, 0x20}};  // 0, 1, 2
  EXPECT_EQ(pixels(decode_png(png_file(3, rows, kind))), (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  kind.palette_alpha = {0, 128};
  EXPECT_EQ(pixels(decode_png(png_file(3, rows, kind))),
            (Bytes{1, 2, 3, 0, 4, 5, 6, 128, 7, 8, 9, 255}));
  EXPECT_EQ(pixels(decode_png(png_file(3, rows, kind), {.channels = 3})),
            (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Png, OtherDepthsAndTransparentGray) {
  EXPECT_EQ(pixels(decode_png(png_file(4, {{0xb0}}, {.depth = 1}))), (Bytes{255, 0, 255, 255}));
  EXPECT_EQ(pixels(decode_png(png_file(4, {{0x1b}}, {.depth = 2}))), (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(pixels(decode_png(png_file(2, {{0x12, 0xff, 0xfe, 0x01}}, {.depth = 16}))),
            (Bytes{0x12, 0xfe}));
  const std::string holes = png_file(2, {{5, 6}}, {.transparent_gray = 6});
  EXPECT_EQ(pixels(decode_png(holes)), (Bytes{5, 6}));
  EXPECT_EQ(pixels(decode_png(holes, {.channels = 2})), (Bytes{5, 255, 6, 0}));
}

TEST(Png, Interlaced) {
  const Tensor image = picture(17, 11, 3);
  std::vector<Bytes> rows;
  for (int64_t y = 0; y < 17; ++y) rows.push_back(pixels(image[y]));
  const std::string file =
      png_file(11, rows, {.type = PNG_COLOR_TYPE_RGB, .interlace = PNG_INTERLACE_ADAM7});
  EXPECT_EQ(pixels(decode_png(file)), pixels(image));
}

TEST(Png, EveryTruncationAndEveryChangedByteOfTheImageIsDataLoss) {
  const std::string whole = encode_png(picture(8, 8, 3));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(decode_png(whole.substr(0, size)), DataLoss) << size;
  }
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string changed = whole;
    changed[byte] = static_cast<char>(changed[byte] ^ (1 << (byte % 8)));
    EXPECT_THROW(decode_png(changed), DataLoss) << byte;
  }
  EXPECT_EQ(pixels(decode_png(whole + "more")), pixels(picture(8, 8, 3)));
  EXPECT_EQ(error_text<DataLoss>([&] { decode_png(whole.substr(0, 60)); }),
            "[decode_png] expected a whole PNG image, got damage: the data end too early");
}

// What is damaged must not be left out: without its transparency the image would have 3 channels.
TEST(Png, EveryChangedByteOfTheTransparencyIsDataLoss) {
  const std::string whole = png_file(2, {{0x10}, {0x40}},
                                     {.type = PNG_COLOR_TYPE_PALETTE,
                                      .depth = 2,
                                      .palette = {{1, 2, 3}, {4, 5, 6}},
                                      .palette_alpha = {0, 100}});
  ASSERT_EQ(shape_of(decode_png(whole)), (Shape{2, 2, 4}));
  const std::size_t begin = whole.find("tRNS") - 4;  // With its length, and its checksum behind.
  for (std::size_t bit = begin * 8; bit < (begin + 14) * 8; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(decode_png(changed), DataLoss) << bit;
    EXPECT_THROW(decode_png(changed, {.channels = 3}), DataLoss) << bit;
  }
}

TEST(Images, AbsurdSizesAreRefusedBeforeTheyTakeMemory) {
  std::string png = encode_png(picture(4, 4, 1));
  EXPECT_EQ(error_text<InvalidArgument>([&] { decode_png(png, {.max_pixels = 15}); }),
            "[decode_png] expected at most 15 pixels (max_pixels), got 4 x 4");
  // Width and height in the header, whose checksum then is wrong: make it right.
  const auto with_width = [&](uint32_t width) {
    std::string out = png;
    for (int i = 0; i < 4; ++i)
      out[16 + static_cast<std::size_t>(i)] = static_cast<char>(width >> (24 - 8 * i));
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(out.data()) + 12, 17);
    for (int i = 0; i < 4; ++i)
      out[29 + static_cast<std::size_t>(i)] = static_cast<char>(crc >> (24 - 8 * i));
    return out;
  };
  EXPECT_THROW(decode_png(with_width(0x7fffffff)), InvalidArgument);
  EXPECT_TRUE(error_text<DataLoss>([&] {
                decode_png(with_width(30'000'000));
              }).starts_with("[decode_png] expected a whole PNG image, got "));
  std::string jpeg = encode_jpeg(picture(8, 8, 1));
  const std::size_t frame = jpeg.find("\xff\xc0");
  for (std::size_t i = 5; i < 9; ++i) jpeg[frame + i] = '\x7f';
  EXPECT_EQ(error_text<InvalidArgument>([&] { decode_jpeg(jpeg); }),
            "[decode_jpeg] expected at most 134217728 pixels (max_pixels), got 32639 x 32639");
  EXPECT_TRUE(error_text<DataLoss>([&] {
                decode_jpeg(jpeg, {.max_pixels = int64_t{1} << 40});
              }).ends_with("bytes for 32639 x 32639 pixels"));
}

struct JpegCase {
  EncodeJpegOptions encode;
  DecodeJpegOptions decode;
  Shape shape;
  Sums sums;
};

TEST(Jpeg, TensorFlowsNumbers) {
  const EncodeJpegOptions small = {.quality = 90},
                          full = {.quality = 90, .chroma_downsampling = false},
                          progressive = {.quality = 90, .progressive = true};
  const Shape whole = {20, 24, 3};
  for (const JpegCase& c :
       std::vector<JpegCase>{{small, {}, whole, {149076, 67584567}},
                             {small, {.fast_dct = true}, whole, {147925, 67095745}},
                             {small, {.fancy_upscaling = false}, whole, {149073, 67613869}},
                             {full, {}, whole, {149060, 67618468}},
                             {progressive, {}, whole, {149076, 67584567}},
                             {progressive, {.fast_dct = true}, whole, {147925, 67095745}},
                             {small, {.ratio = 2}, {10, 12, 3}, {37267, 8076438}},
                             {small, {.ratio = 4}, {5, 6, 3}, {9310, 504997}},
                             {small, {.ratio = 8}, {3, 3, 3}, {3009, 47323}},
                             {full, {.ratio = 8}, {3, 3, 3}, {3017, 47467}},
                             {small, {.channels = 1}, {20, 24, 1}, {53204, 14514015}}}) {
    const Tensor image = decode_jpeg(encode_jpeg(picture(20, 24, 3), c.encode), c.decode);
    EXPECT_EQ(shape_of(image), c.shape);
    EXPECT_EQ(sums(image), c.sums);
  }
}

TEST(Jpeg, ChannelsOfGrayAndColour) {
  const Tensor gray = decode_jpeg(encode_jpeg(picture(9, 5, 1)));
  EXPECT_EQ(shape_of(gray), (Shape{9, 5, 1}));
  const Tensor rgb = decode_jpeg(encode_jpeg(picture(9, 5, 1)), {.channels = 3});
  for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(pixels(rgb.select(2, c)), pixels(gray.select(2, 0)));
  const std::string colour = encode_jpeg(picture(9, 5, 3));
  const Tensor rgba = decode_image(colour, {.channels = 4});
  EXPECT_EQ(pixels(rgba.narrow(2, 0, 3)), pixels(decode_jpeg(colour)));
  EXPECT_EQ(pixels(rgba.select(2, 3)), Bytes(45, 255));
  EXPECT_EQ(error_text<InvalidArgument>([&] { decode_jpeg(colour, {.channels = 2}); }),
            "[decode_jpeg] expected channels of 0, 1, 3 or 4, got 2");
  EXPECT_THROW(decode_image(colour, {.channels = 2}), InvalidArgument);
  EXPECT_THROW(decode_jpeg(colour, {.ratio = 3}), InvalidArgument);
}

TEST(Jpeg, CmykIsRgb) {
  // Inks that print-makers' programs store inverted, and others as they are.
  for (bool adobe : {false, true}) {
    const std::string file = testing::cmyk_jpeg(16, 16, {0, 100, 255, 50}, adobe);
    const Bytes expected = adobe ? Bytes{0, 20, 50} : Bytes{205, 125, 0};
    const Tensor rgb = decode_jpeg(file);
    EXPECT_EQ(shape_of(rgb), (Shape{16, 16, 3}));
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(rgb[7][7][c].item<int>(), expected[static_cast<std::size_t>(c)], 3) << adobe;
    }
    const double luma = 0.299 * expected[0] + 0.587 * expected[1] + 0.114 * expected[2];
    EXPECT_NEAR(decode_jpeg(file, {.channels = 1})[3][3].item<int>(), luma, 3);
    EXPECT_EQ(decode_jpeg(file, {.channels = 4})[3][3][3].item<int>(), 255);
  }
}

TEST(Jpeg, DamageIsFoundAndTheNextImageIsWhole) {
  for (bool progressive : {false, true}) {
    const std::string whole =
        encode_jpeg(picture(40, 40, 3), {.quality = 90, .progressive = progressive});
    const Bytes expected = pixels(decode_jpeg(whole));
    // Without its last two bytes, the mark of its end, a baseline image is whole.
    for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
      EXPECT_THROW(decode_jpeg(whole.substr(0, size)), DataLoss) << size;
    }
    EXPECT_EQ(pixels(decode_jpeg(whole)), expected);
    const Tensor part = decode_jpeg(whole.substr(0, whole.size() - 100), {.accept_damaged = true});
    EXPECT_EQ(shape_of(part), (Shape{40, 40, 3}));
    for (std::size_t byte = 0; byte < whole.size(); ++byte) {
      std::string changed = whole;
      changed[byte] = static_cast<char>(changed[byte] ^ (1 << (byte % 8)));
      try {
        decode_jpeg(changed, {.max_pixels = 1'000'000});
      } catch (const Error& e) {
        EXPECT_NE(e.code(), ErrorCode::kInternal) << e.what();
      }
    }
    EXPECT_EQ(pixels(decode_jpeg(whole)), expected);
  }
  EXPECT_EQ(error_text<DataLoss>([] { decode_jpeg("no"); }).substr(0, 58),
            "[decode_jpeg] expected a whole JPEG image, got damage: Not");
}

TEST(Jpeg, ScansWithoutEndAreRefused) {
  // The last scan of a progressive image, many times: each costs a pass over the image.
  const std::string whole = encode_jpeg(picture(16, 16, 1), {.progressive = true});
  const std::size_t scan = whole.rfind("\xff\xda");
  std::string bomb = whole.substr(0, whole.size() - 2);
  for (int i = 0; i < 200; ++i) bomb += whole.substr(scan, whole.size() - 2 - scan);
  EXPECT_THROW(decode_jpeg(bomb + "\xff\xd9"), DataLoss);
}

TEST(Images, ThreadsHaveTheirOwnDecoders) {
  const std::string jpeg = encode_jpeg(picture(30, 30, 3));
  const std::string png = encode_png(picture(30, 30, 3));
  const Bytes expected = pixels(decode_jpeg(jpeg));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(pixels(decode_jpeg(jpeg)), expected);
        EXPECT_THROW(decode_jpeg(jpeg.substr(0, 200)), DataLoss);
        EXPECT_EQ(pixels(decode_png(png)), pixels(picture(30, 30, 3)));
        EXPECT_THROW(decode_png(png.substr(0, 200)), DataLoss);
      }
    });
  }
}

TEST(Resize, TensorFlowsNumbers) {
  Tensor image = (arange(12) * 7).to(kUint8).reshape({3, 4, 1});
  EXPECT_EQ(to_vector<float>(resize_image(image, 2, 3)),
            (Floats{8.16666698F, 17.5F, 26.833334F, 50.1666679F, 59.5F, 68.8333359F}));
  EXPECT_EQ(to_vector<float>(resize_image(image, 5, 6)),
            (Floats{0.0F,        3.5F,        8.16666698F, 12.833334F,  17.5F,       21.0F,
                    11.2000008F, 14.7000008F, 19.3666687F, 24.0333366F, 28.7000008F, 32.2000008F,
                    28.0F,       31.5F,       36.1666679F, 40.8333359F, 45.5F,       49.0F,
                    44.8000031F, 48.3000031F, 52.9666672F, 57.6333389F, 62.3000031F, 65.8000031F,
                    56.0F,       59.5F,       64.1666641F, 68.8333359F, 73.5F,       77.0F}));
  EXPECT_EQ(pixels(resize_image(image, 2, 3, ResizeMethod::kNearest)),
            (Bytes{0, 14, 21, 56, 70, 77}));
  EXPECT_EQ(pixels(resize_image(image, 5, 6, ResizeMethod::kNearest)),
            (Bytes{0,  7,  7,  14, 21, 21, 0,  7,  7,  14, 21, 21, 28, 35, 35,
                   42, 49, 49, 56, 63, 63, 70, 77, 77, 56, 63, 63, 70, 77, 77}));
  const Tensor i = arange(105);
  image = (i * i * 13).remainder(256).to(kUint8).reshape({5, 7, 3});
  const Floats rgb = {110.25F,     189.416672F, 81.25F,      126.25F,     73.0833282F, 152.583344F,
                      159.75F,     146.25F,     94.75F,      194.75F,     198.25F,     163.75F,
                      89.9166641F, 133.083359F, 138.250031F, 165.250015F, 204.083328F, 34.2499924F};
  EXPECT_EQ(to_vector<float>(resize_image(image, 3, 2)), rgb);
  EXPECT_EQ(to_vector<float>(resize_image(image.to(kFloat32), 3, 2)), rgb);
  EXPECT_EQ(to_vector<float>(resize_image(image.to(kInt32), 3, 2)), rgb);
  EXPECT_EQ(to_vector<float>(resize_image(image, 7, 5)[6][4]),
            (Floats{103.400024F, 192.800003F, 52.1999817F}));
}

TEST(Resize, EveryPathGivesTheSameNumbers) {
  for (int64_t channels : {1, 2, 3, 4, 5}) {
    const Tensor image = picture(19, 23, channels);
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{19, 23}, {7, 50}, {40, 5}, {1, 1}}) {
      const Tensor out = resize_image(image, h, w);
      EXPECT_EQ(to_vector<float>(out), to_vector<float>(resize_image(image.to(kFloat32), h, w)));
      for (int64_t c = 0; c < channels; ++c) {
        EXPECT_EQ(to_vector<float>(out.narrow(2, c, 1)),
                  to_vector<float>(resize_image(image.narrow(2, c, 1), h, w)));
      }
    }
    EXPECT_EQ(to_vector<float>(resize_image(image, 19, 23)), to_vector<float>(image));
  }
  const Tensor two = at::stack({picture(6, 7, 3), picture(6, 7, 3).flip(0)});
  const Tensor out = resize_image(two, 4, 4);
  EXPECT_EQ(shape_of(out), (Shape{2, 4, 4, 3}));
  EXPECT_EQ(to_vector<float>(out[1]), to_vector<float>(resize_image(two[1], 4, 4)));
  EXPECT_EQ(to_vector<int32_t>(resize_image(two.to(kInt32), 9, 2, ResizeMethod::kNearest)),
            to_vector<int32_t>(resize_image(two, 9, 2, ResizeMethod::kNearest)));
}

TEST(Resize, RefusesWhatHasNoPixels) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              resize_image(zeros({3, 3}), 2, 2);
            }),
            "[resize_image] expected an image [h, w, c] or images [n, h, w, c], got [3, 3]");
  EXPECT_THROW(resize_image(zeros({0, 3, 1}), 2, 2), InvalidArgument);
  EXPECT_THROW(resize_image(zeros({3, 3, 1}), 0, 2), InvalidArgument);
  EXPECT_THROW(resize_image(zeros({3, 3, 1}), int64_t{1} << 62, 4), InvalidArgument);
  EXPECT_THROW(resize_image(Tensor(), 2, 2), InvalidArgument);
  EXPECT_EQ(shape_of(resize_image(zeros({0, 3, 3, 1}), 2, 2)), (Shape{0, 2, 2, 1}));
}

TEST(DecodeAndResize, IsBothInOne) {
  for (const std::string& file :
       {encode_jpeg(picture(50, 40, 3)), encode_png(picture(50, 40, 3))}) {
    EXPECT_EQ(to_vector<float>(decode_and_resize(file, 17, 60)),
              to_vector<float>(resize_image(decode_image(file), 17, 60)));
    EXPECT_EQ(
        pixels(decode_and_resize(file, 9, 9, {.channels = 1, .method = ResizeMethod::kNearest})),
        pixels(resize_image(decode_image(file, {.channels = 1}), 9, 9, ResizeMethod::kNearest)));
    // The middle 40 x 40 of 50 x 40.
    EXPECT_EQ(to_vector<float>(decode_and_resize(file, 8, 8, {.crop_to_aspect_ratio = true})),
              to_vector<float>(resize_image(decode_image(file).narrow(0, 5, 40), 8, 8)));
    EXPECT_EQ(to_vector<float>(decode_and_resize(file, 8, 16, {.crop_to_aspect_ratio = true})),
              to_vector<float>(resize_image(decode_image(file).narrow(0, 15, 20), 8, 16)));
  }
  const std::string file = encode_jpeg(picture(50, 40, 3));
  EXPECT_EQ(to_vector<float>(decode_and_resize(file, 13, 10, {.dct_scaling = true})),
            to_vector<float>(decode_jpeg(file, {.ratio = 4})));
  EXPECT_EQ(to_vector<float>(decode_and_resize(file, 14, 10, {.dct_scaling = true})),
            to_vector<float>(resize_image(decode_jpeg(file, {.ratio = 2}), 14, 10)));
  EXPECT_THROW(decode_and_resize(file, 0, 10), InvalidArgument);
  EXPECT_THROW(decode_and_resize(file, 10, 10, {.max_pixels = 99}), InvalidArgument);
}

class ImageFiles : public testing::FilesTest {};

TEST_F(ImageFiles, ErrorsNameTheFile) {
  const std::string cut = write("cut.png", encode_png(picture(8, 8, 3)).substr(0, 70));
  EXPECT_EQ(
      error_text<DataLoss>([&] { read_image(cut); }),
      "[read_image] " + cut + ": expected a whole PNG image, got damage: the data end too early");
  EXPECT_EQ(
      error_text<Unimplemented>([&] { read_image(write("a.gif", "GIF89a...")); }),
      "[read_image] " + path("a.gif") + ": GIF images are not read: convert them to PNG or JPEG");
  EXPECT_EQ(error_text<DataLoss>([&] { read_image(write("empty", "")); }),
            "[read_image] " + path("empty") + ": expected a PNG or JPEG image, got no bytes");
  testing::expect_error(ErrorCode::kNotFound, {path("none")}, [&] { read_image(path("none")); });
  const std::string large(1'000'000, 'x');
  EXPECT_EQ(read_file(write("large", large)), large);
}

TEST_F(ImageFiles, InAPipeline) {
  for (int i = 0; i < 6; ++i) {
    write(str_cat("f", i, ".png"), encode_png(full({4, 4, 3}, i, kUint8)));
  }
  write("f6.png", "damaged");
  auto skipped = std::make_shared<std::atomic<int64_t>>(0);
  const auto images =
      Dataset::list_files(path("f*.png"), {.shuffle = false})
          .map([](const std::string& file) { return decode_and_resize(read_file(file), 2, 2); },
               {.parallel_calls = 3})
          .ignore_errors({.log_warning = false, .skipped = skipped})
          .batch(4);
  std::vector<Shape> shapes;
  float sum = 0;
  for (const Element& e : images) {
    shapes.push_back(shape_of(e.tensor()));
    sum += e.tensor().sum().item<float>();
  }
  EXPECT_EQ(shapes, (std::vector<Shape>{{4, 2, 2, 3}, {2, 2, 2, 3}}));
  EXPECT_EQ(sum, 15 * 12);
  EXPECT_EQ(*skipped, 1);
}

TEST(Encode, RefusesOtherTensors) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              encode_png(zeros({2, 2, 3}));
            }),
            "[encode_png] expected uint8 pixels [height, width, 1 to 4], got float32 [2, 2, 3]");
  EXPECT_THROW(encode_png(zeros({2, 2, 5}, kUint8)), InvalidArgument);
  EXPECT_THROW(encode_png(zeros({0, 2, 3}, kUint8)), InvalidArgument);
  EXPECT_THROW(encode_png(zeros({2, 2, 3}, kUint8), 10), InvalidArgument);
  EXPECT_THROW(encode_jpeg(zeros({2, 2, 2}, kUint8)), InvalidArgument);
  EXPECT_THROW(encode_jpeg(zeros({2, 2, 3}, kUint8), {.quality = 101}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(zeros({70000, 1, 1}, kUint8)), InvalidArgument);
}

}  // namespace
}  // namespace cohort
