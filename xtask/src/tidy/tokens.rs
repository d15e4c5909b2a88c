//! Rust source as a flat list of words and signs, without comments: what a rule can look through without taking a word
//! in a comment or a string for code.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One word, sign or literal, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// As written. `::` is two tokens. A literal is empty: no rule looks into one.
    pub text: String,
    /// From 1.
    pub line: usize,
}

/// The tokens of a file, or the line where it stops being Rust.
pub fn read(source: &str) -> Result<Vec<Token>, usize> {
    let stream = TokenStream::from_str(source).map_err(|error| error.span().start().line)?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(word) => tokens.push(Token { text: word.to_string(), line }),
            TokenTree::Punct(sign) => tokens.push(Token { text: sign.as_char().to_string(), line }),
            TokenTree::Literal(_) => tokens.push(Token { text: String::new(), line }),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
        }
    }
}

/// The lines on which `words` stand one after the other.
pub fn lines_of(tokens: &[Token], words: &[&str]) -> Vec<usize> {
    let found =
        tokens.windows(words.len()).filter(|window| window.iter().zip(words).all(|(token, word)| token.text == **word));
    found.filter_map(|window| window.first()).map(|token| token.line).collect()
}

/// What is used of the standard library: for `std::fs::read` and `std::{fs, io}` the words `fs` and `io`, with their lines.
pub fn std_modules(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut modules = Vec::new();
    for (index, window) in tokens.windows(3).enumerate() {
        if window.iter().map(|token| token.text.as_str()).ne(["std", ":", ":"]) {
            continue;
        }
        let rest = tokens.get(index + 3..).unwrap_or_default();
        match rest.first() {
            Some(token) if token.text == "{" => modules.extend(first_words(rest)),
            Some(token) => modules.push((token.text.clone(), token.line)),
            None => {}
        }
    }
    modules
}

/// Of a use tree that begins with `{`, the first word of each branch.
fn first_words(tree: &[Token]) -> Vec<(String, usize)> {
    let mut words = Vec::new();
    let mut depth = 0_usize;
    let mut begins = false;
    for token in tree {
        match token.text.as_str() {
            "{" => {
                depth += 1;
                begins = depth == 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            "," => begins = depth == 1,
            word if begins => {
                words.push((word.to_owned(), token.line));
                begins = false;
            }
            _ => {}
        }
    }
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_strings_are_no_code() {
        let tokens = read("// unsafe\n/// unsafe\nfn f() { g(\"unsafe\") }\n").unwrap();
        assert!(lines_of(&tokens, &["unsafe"]).is_empty());
        assert_eq!(lines_of(&tokens, &["g", "("]), [3]);
    }

    #[test]
    fn the_standard_library_s_modules_are_seen_in_paths_and_trees() {
        let source =
            "use std::fs;\nuse std::{\n  io::{self, Read},\n  net::TcpStream,\n};\nfn f() { std::time::now(); }";
        let modules = std_modules(&read(source).unwrap());
        let expected = [("fs", 1), ("io", 3), ("net", 4), ("time", 6)].map(|(word, line)| (word.to_owned(), line));
        assert_eq!(modules, expected);
    }

    #[test]
    fn what_is_no_rust_gives_its_line() {
        assert_eq!(read("fn f() {}\n}\n"), Err(2));
    }
}
