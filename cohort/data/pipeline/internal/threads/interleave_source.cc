// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/interleave_source.h"

#include <utility>

namespace cohort::internal::data {

void save_source(StateWriter& out, const InterleaveSource& source) {
  out.put_error(source.no_source);
  if (source.no_source) return;
  out.put_element(source.argument);
  out.put_int(source.index);
  out.put_int(static_cast<int64_t>(source.items.size()));
  for (std::size_t i = 0; i < source.items.size(); ++i) {
    out.put_error(source.items[i].error);
    if (!source.items[i].error) out.put_element(source.items[i].element);
  }
  out.put_int(source.ended ? 1 : 0);
  if (!source.ended) source.stream->save(out);
}

std::unique_ptr<InterleaveSource> restore_source(StateReader& in, const OpenDataset& open) {
  auto source = std::make_unique<InterleaveSource>();
  source->no_source = in.get_error();
  if (source->no_source) return source;
  source->argument = in.get_element();
  source->index = in.get_int();
  for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
    InterleaveSource::Item item{{}, in.get_error()};
    if (!item.error) item.element = in.get_element();
    source->items.push_back(std::move(item));
  }
  source->ended = in.get_flag();
  if (source->ended) return source;
  source->stream = open_stream<Element>(*open(source->argument, source->index));
  source->stream->restore(in);
  source->stream->start();
  return source;
}

}  // namespace cohort::internal::data
