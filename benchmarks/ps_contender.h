// SPDX-License-Identifier: Apache-2.0
//
// Cohort's job of real processes in ps_peers_bench: a chief that answers lines, two workers and two
// parameter servers. peers/tensorflow_ps_peer.py has the same in TensorFlow, line by line:
//
//   (start)               -> ready <versions>
//   schedule <count>      -> ok <nanoseconds> <count>   empty functions, until join
//   push <count>          -> ok <nanoseconds> <count>   4 MB of gradients to SGD, one after the
//   other pull, push_rows, pull_rows <count>                  the same of 4 MB, of 4,096 rows of 1
//   M x 32 load <path>           -> ok                         the recommender, and impressions to
//   train by loss                  -> ok <loss>                  of the batch that is not trained
//   with train <count>         -> ok <nanoseconds> <count>   steps of one batch, on whichever
//   worker quit
//
// A count in an answer is what variables say, or what came back: proof that the work was done.
#pragma once

namespace cohort::bench {

/// A worker or server of the job (TF_CONFIG says which), until it is over; else its chief, which
/// starts them, and ends them with itself.
int serve_parameter_job();

}  // namespace cohort::bench
