//! Leaves out of a text what it should keep to itself, by rules, for readers who aren't of the workspace.

use crate::Arguments;
use crate::call::{is_secret, masked, without_secrets};

/// What stands for what was left out.
const LEFT_OUT: &str = "•••";
/// The names of headers whose whole line is a secret.
const HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];
/// The words before a secret in such a header.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// The begins of the tokens of well-known services, and of this one.
const PREFIXES: [&str; 14] =
    ["lw_", "sk-", "sk_", "pk_", "rk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "eyJ"];
/// The least length of a token with such a begin, and of what follows a scheme.
const TOKEN_CHARS_MIN: usize = 8;
/// The least length of a number in hexadecimal that may be a key.
const HEX_CHARS_MIN: usize = 32;
/// The least length of a key in Base64.
const BASE64_CHARS_MIN: usize = 40;

/// Returns a text without what looks like a secret: what follows a name such as `password`, the value of a header that
/// authenticates, private keys, tokens by their looks, and what addresses keep to themselves.
#[must_use]
pub fn redacted(text: &str) -> String {
    let text = without_keys(&without_secrets(text));
    let (mut out, mut rest, mut before) = (String::with_capacity(text.len()), &*text, "");
    while !rest.is_empty() {
        let (gap, from) = rest.split_at(rest.find(is_of_word).unwrap_or(rest.len()));
        out.push_str(gap);
        let secret = secret_end(before, gap, from);
        if secret > 0 {
            out.push_str(LEFT_OUT);
            (before, rest) = ("", &from[secret..]);
            continue;
        }
        let (word, behind) = from.split_at(from.find(|c| !is_of_word(c)).unwrap_or(from.len()));
        out.push_str(if looks_secret(word) { LEFT_OUT } else { word });
        (before, rest) = (word, behind);
    }
    out
}

/// Returns the arguments of a call without what looks like a secret: in each text, and all that stands under the name of
/// one but `true`, `false` and `null`.
#[must_use]
pub fn redacted_call(all: &Arguments) -> Arguments {
    let member = |(name, value): (String, Arguments)| {
        let is_kept = !is_secret(&name) || matches!(value.as_str(), "true" | "false" | "null");
        (name, if is_kept { redacted_call(&value) } else { serde_json::Value::from(LEFT_OUT).into() })
    };
    if let Some(text) = all.text() {
        serde_json::Value::from(redacted(&text)).into()
    } else if let Some(members) = all.members() {
        Arguments::of(&members.into_iter().map(member).collect())
    } else if let Some(items) = all.items() {
        Arguments::list(&items.iter().map(redacted_call).collect::<Vec<_>>())
    } else {
        all.clone()
    }
}

/// Returns the text without blocks such as private keys.
fn without_keys(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, block)) = rest.split_once("-----BEGIN ") {
        out.extend([before, LEFT_OUT]);
        let end = block.split_once("-----END ").map_or("", |(_, end)| end);
        rest = end.split_once("-----").map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    out
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~' | '@' | '%' | '#')
}

/// Returns the length of the secret at the begin of `from`, by the word before it and what is between; 0 if there is none.
fn secret_end(before: &str, gap: &str, from: &str) -> usize {
    let is_joint = |c: char| matches!(c, ' ' | '\t' | '"' | '\'' | '\\' | '=' | ':' | '>');
    let joins = gap.contains(['=', ':']) && gap.chars().all(is_joint);
    let is_one_of = |words: &[&str]| words.iter().any(|word| before.eq_ignore_ascii_case(word));
    let quote = gap.chars().next_back().filter(|c| matches!(c, '"' | '\''));
    let ends = |at: &dyn Fn(char) -> bool| {
        from.find(|c| quote.map_or_else(|| at(c), |quote| c == quote)).unwrap_or(from.len())
    };
    let word = || ends(&|c| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&' | ')' | '}'));
    if joins && is_one_of(&HEADERS) {
        return ends(&|c| matches!(c, '\n' | '"' | '\''));
    }
    if (joins || (gap == " " && before.starts_with("--"))) && is_secret(before) {
        return word();
    }
    if gap == " " && is_one_of(&SCHEMES) { Some(word()).filter(|end| *end >= TOKEN_CHARS_MIN).unwrap_or(0) } else { 0 }
}

fn looks_secret(word: &str) -> bool {
    let has = |wanted: fn(&u8) -> bool| word.as_bytes().iter().any(wanted);
    let is_known =
        PREFIXES.iter().any(|begin| word.strip_prefix(begin).is_some_and(|rest| rest.len() >= TOKEN_CHARS_MIN));
    let is_hex = word.len() >= HEX_CHARS_MIN && word.bytes().all(|b| b.is_ascii_hexdigit());
    let is_base64 = word.len() >= BASE64_CHARS_MIN
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'_' | b'-'))
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase);
    (is_known && has(|b| b.is_ascii_digit())) || is_hex || is_base64 || masked(word) != word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_left_out() {
        for (text, wanted) in [
            ("export DB_PASSWORD=hunter2; ls", "export DB_PASSWORD=•••; ls"),
            (r#"{"api_key": "a b c", "n": 1}"#, r#"{"api_key": "•••", "n": 1}"#),
            (r#"{\"password\":\"x\"}"#, r#"{\"password\":\"•••"}"#),
            ("deploy --token abc --region eu", "deploy --token ••• --region eu"),
            ("curl -H 'Authorization: Bearer abc def' x", "curl -H 'Authorization: •••' x"),
            ("Cookie: a=1; b=2\nnext", "Cookie: •••\nnext"),
            ("use Bearer abcdefgh1 now", "use Bearer ••• now"),
            ("lw_0123456789abcdef and ghp_16C7e42F292c6912E7", "••• and •••"),
            ("sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "sha •••"),
            ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "•••"),
            ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a ••• b"),
            ("password=é, token: \"ü", "password=•••, token: \"•••"),
            ("cut -----BEGIN KEY-----\nMII", "cut •••"),
            ("https://anna:pw@host/x?token=1&n=2", "https://anna:•••@host/x?token=•••&n=2"),
        ] {
            assert_eq!(redacted(text), wanted, "{text}");
        }
    }

    #[test]
    fn all_under_the_name_of_a_secret_is_left_out_of_a_call() {
        for (call, wanted) in [
            (r#"{"token":123456,"n":1}"#, r#"{"n":1,"token":"•••"}"#),
            (r#"{"api_key":{"id":"a","of":["b"]}}"#, r#"{"api_key":"•••"}"#),
            (r#"{"db":{"password":["x",7]}}"#, r#"{"db":{"password":"•••"}}"#),
            (r#"{"password":null,"use_token":true}"#, r#"{"password":null,"use_token":true}"#),
            (r#"{"password":"x","user":"anna"}"#, r#"{"password":"•••","user":"anna"}"#),
        ] {
            assert_eq!(redacted_call(&Arguments::parse(call).unwrap()).as_str(), wanted, "{call}");
        }
    }

    #[test]
    fn what_does_not_is_kept() {
        for text in [
            "",
            "rm -rf build/Release1 && echo done",
            "Deploy v1.2.3 to eu: is it safe?",
            "sk-eleton crew",
            "größer\n  = 3",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}
