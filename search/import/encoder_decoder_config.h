// ffsearch import config.json: T5 (Raffel et al. 2019, arXiv 1910.10683), an encoder and a decoder.
#pragma once

#include "search/import/config_file.h"

namespace ff {

// Of sequences of `sequence` tokens on both sides. The graph inputs are "token", "decoder_token" and "label".
ConfigNetwork network_of_t5(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes);

}  // namespace ff
