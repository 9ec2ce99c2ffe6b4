// The byte-pair tokenizer of llama2.c: scored pieces, merged greedily.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace examples {

class Tokenizer {
 public:
  static constexpr int bos = 1;         // begins a text, and ends one
  static constexpr int first_byte = 3;  // tokens 3 .. 258 stand for single bytes

  /// File: int32 longest piece, then for each token a float32 score, an int32 length and the bytes of its piece.
  Tokenizer(const std::string& path, int vocab_size) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + ": cannot be opened");
    const auto read = [&](void* to, std::size_t bytes) {
      if (!file.read(static_cast<char*>(to), std::streamsize(bytes))) {
        throw std::runtime_error(path + ": ends in token " + std::to_string(pieces_.size()) + " of " + std::to_string(vocab_size));
      }
    };
    std::int32_t longest = 0;
    read(&longest, sizeof longest);
    while (int(pieces_.size()) < vocab_size) {
      float score = 0;
      std::int32_t length = 0;
      read(&score, sizeof score);
      read(&length, sizeof length);
      if (length < 0 || length > longest)
        throw std::runtime_error(path + ": not a llama2.c tokenizer: a piece of " + std::to_string(length) + " bytes");
      std::string piece(std::size_t(length), '\0');
      read(piece.data(), piece.size());
      ids_.emplace(piece, int(pieces_.size()));
      pieces_.push_back(std::move(piece));
      scores_.push_back(score);
    }
  }

  /// BOS, then the text's tokens. Text is tokenized with a space in front, as sentencepiece does.
  std::vector<int> encode(std::string_view text) const {
    std::vector<int> tokens;
    if (!text.empty()) add_character(" ", tokens);
    while (!text.empty()) {
      const std::size_t bytes = character_bytes(text);
      add_character(text.substr(0, bytes), tokens);
      text.remove_prefix(bytes);
    }
    merge(tokens);
    tokens.insert(tokens.begin(), bos);
    return tokens;
  }

  /// The text that `token` adds after `previous`.
  std::string decode(int previous, int token) const {
    const std::string& piece = pieces_.at(std::size_t(token));
    if (previous == bos && !piece.empty() && piece[0] == ' ') return piece.substr(1);  // the space that encode() put in front
    if (token >= first_byte && token < first_byte + 256 && is_byte_piece(piece)) return std::string(1, char(token - first_byte));
    return piece;
  }
  std::string decode(const std::vector<int>& tokens) const {
    std::string text;
    for (std::size_t i = 1; i < tokens.size(); ++i) text += decode(tokens[i - 1], tokens[i]);
    return text;
  }

 private:
  /// Bytes of the UTF-8 character that the text begins with; of broken UTF-8, what looks like one.
  static std::size_t character_bytes(std::string_view text) {
    std::size_t bytes = 1;
    while (bytes < 4 && bytes < text.size() && (std::uint8_t(text[bytes]) & 0xc0) == 0x80) ++bytes;
    return bytes;
  }

  static bool is_byte_piece(const std::string& piece) {
    return piece.size() == 6 && piece.compare(0, 3, "<0x") == 0 && piece[5] == '>';
  }

  void add_character(std::string_view character, std::vector<int>& tokens) const {
    if (const auto found = ids_.find(std::string(character)); found != ids_.end()) {
      tokens.push_back(found->second);
      return;
    }
    for (const char byte : character) tokens.push_back(first_byte + std::uint8_t(byte));
  }

  /// Replaces the neighbours that make the best-scored piece by it, until no two make one; of equals the first.
  void merge(std::vector<int>& tokens) const {
    for (;;) {
      float best_score = -std::numeric_limits<float>::infinity();
      std::size_t best = tokens.size();
      int merged = 0;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        const auto found = ids_.find(pieces_[std::size_t(tokens[i])] + pieces_[std::size_t(tokens[i + 1])]);
        if (found == ids_.end() || !(scores_[std::size_t(found->second)] > best_score)) continue;
        best_score = scores_[std::size_t(found->second)];
        best = i;
        merged = found->second;
      }
      if (best == tokens.size()) return;
      tokens[best] = merged;
      tokens.erase(tokens.begin() + std::ptrdiff_t(best) + 1);
    }
  }

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, int> ids_;
};

}  // namespace examples
