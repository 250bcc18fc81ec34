// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/status/status_server.h"

#include <utility>

#include "cohort/base/logging.h"

namespace cohort::internal::coordinator {

StatusServer::StatusServer(const Options& options, const std::shared_ptr<StatusBoard>& board) {
  if (!options.address.empty()) {
    try {
      server_ = std::make_unique<rpc::RpcServer>(
          rpc::RpcServerOptions{.address = options.address, .security = options.security},
          std::map<std::string, rpc::RpcHandler>{
              {kStatusMethod,
               [board](const rpc::RpcRequest& /*request*/, const rpc::RpcReply& out) {
                 out.send(rpc::Payload(board->json()));
               }}});
    } catch (const Error& e) {
      COHORT_LOG(kWarning, "`cohort status` will not be answered: ", e.what());
    }
  }
  if (!options.page) return;
  page_ = std::make_unique<StatusPage>(*options.page, [board] { return board->json(); });
  COHORT_LOG(kInfo, "status page: ", page_->url());
}

}  // namespace cohort::internal::coordinator
