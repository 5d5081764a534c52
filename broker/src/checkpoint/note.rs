//! Signed notes, in the form of C2SP's `signed-note`: a text, an empty line, and a line for each signature.
//!
//! ```text
//! the text, one or more lines
//!
//! — NAME base64(key id, signature)
//! ```
//!
//! Two of the assigned kinds of signatures are known: Ed25519 over the text, and the cosignature of what C2SP calls a
//! witness, which also covers a time (`tlog-cosignature`).

use std::fmt::{self, Display, Formatter};
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use crate::identity::{hex, random, unhex};

/// Begins the line of a signature.
const SIGNATURE: &str = "— ";
/// Begins the text of a private key.
const PRIVATE: &str = "PRIVATE+KEY+";
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
const TIME_BYTES: usize = 8;
/// The most signatures that a note may have; the form asks for at least 16.
const SIGNATURES_MAX: usize = 64;

/// What a signature states, by the byte that the form assigns to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// The text, by Ed25519.
    Text,
    /// The text and the time at which a cosigner signed it, by Ed25519 (`cosignature/v1`).
    TextAndTime,
}

impl Signs {
    const fn byte(self) -> u8 {
        match self {
            Self::Text => 0x01,
            Self::TextAndTime => 0x04,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Text, Self::TextAndTime].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Why a text isn't a key, isn't a note, or isn't signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The text isn't a public key.
    #[error("not a public key, which has the form NAME+ID+BASE64: {0}")]
    PublicKey(&'static str),
    /// The text isn't a private key.
    #[error("not a private key, which has the form PRIVATE+KEY+NAME+ID+BASE64: {0}")]
    PrivateKey(&'static str),
    /// The text isn't a signed note.
    #[error("not a signed note: line {line} {problem}")]
    Form {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No signature is by this key.
    #[error("not signed by the key {0}")]
    Unsigned(String),
    /// A signature has the name and id of this key, and isn't by it: the text was altered.
    #[error("the signature of {0} doesn't match: the text or the signature was altered")]
    Forged(String),
}

/// A public key, with the name of its owner and what it signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    name: String,
    signs: Signs,
    bytes: [u8; KEY_BYTES],
}

impl PublicKey {
    /// Returns the name that its signatures bear.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key itself, as Ed25519 has it.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// Returns what its signatures state.
    #[must_use]
    pub const fn signs(&self) -> Signs {
        self.signs
    }

    fn id(&self) -> [u8; ID_BYTES] {
        let mut hash = Sha256::new();
        hash.update(self.name.as_bytes());
        hash.update([b'\n', self.signs.byte()]);
        hash.update(self.bytes);
        let hash: [u8; 32] = hash.finalize().into();
        [hash[0], hash[1], hash[2], hash[3]]
    }
}

impl Display for PublicKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = [&[self.signs.byte()], self.bytes.as_slice()].concat();
        write!(f, "{}+{}+{}", self.name, hex(&self.id()), STANDARD.encode(key))
    }
}

impl FromStr for PublicKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let KeyText { name, id, signs, bytes } = split(text).map_err(NoteError::PublicKey)?;
        let key = Self { name, signs, bytes };
        if key.id() == id { Ok(key) } else { Err(NoteError::PublicKey("the id isn't that of the key")) }
    }
}

/// The parts of a key's text. The id is the one that the text states.
struct KeyText {
    name: String,
    id: [u8; ID_BYTES],
    signs: Signs,
    bytes: [u8; KEY_BYTES],
}

/// Takes a key's text apart.
fn split(text: &str) -> Result<KeyText, &'static str> {
    let mut parts = text.trim().splitn(3, '+');
    let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a part is missing");
    };
    if !is_name(name) {
        return Err("the name is empty or has a space");
    }
    let id = unhex(id).ok_or("the id isn't 8 hexadecimal digits")?;
    let key = STANDARD.decode(key).map_err(|_| "the key isn't base64")?;
    let (kind, bytes) = key.split_first().ok_or("the key is empty")?;
    let signs = Signs::of(*kind).ok_or("the key is of a kind that this version doesn't know")?;
    let bytes = bytes.try_into().map_err(|_| "the key isn't 32 bytes long")?;
    Ok(KeyText { name: name.to_owned(), id, signs, bytes })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
}

/// A private key. It implements neither `Debug` nor `Display`.
pub struct PrivateKey {
    public: PublicKey,
    pair: Ed25519KeyPair,
    seed: [u8; KEY_BYTES],
}

impl PrivateKey {
    /// Makes a key with a name that ends in digits of its own.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn generate(prefix: &str, signs: Signs) -> io::Result<Self> {
        let seed = random()?;
        let unusable = |rejected| io::Error::other(format!("the key can't be used: {rejected}"));
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(unusable)?;
        let bytes = public(&pair);
        let name = format!("{prefix}{}", hex(&Sha256::digest(bytes)[..8]));
        Ok(Self { public: PublicKey { name, signs, bytes }, pair, seed })
    }

    /// Returns the key's text, `PRIVATE+KEY+NAME+ID+BASE64`, for the file of its owner.
    #[must_use]
    pub fn reveal(&self) -> String {
        let key = [&[self.public.signs.byte()], self.seed.as_slice()].concat();
        format!("{PRIVATE}{}+{}+{}", self.public.name, hex(&self.public.id()), STANDARD.encode(key))
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns this key's signature of bytes.
    pub(super) fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    /// Adds this key's signature to a note. `time_s` is the time in seconds since the Unix epoch, which a cosignature
    /// states.
    pub fn sign(&self, note: &mut Note, time_s: u64) {
        let (prefix, message) = match self.public.signs {
            Signs::Text => (Vec::new(), note.text.clone()),
            Signs::TextAndTime => (time_s.to_be_bytes().to_vec(), timed(&note.text, time_s)),
        };
        let bytes = [prefix.as_slice(), self.pair.sign(message.as_bytes()).as_ref()].concat();
        note.signatures.push(Signature { name: self.public.name.clone(), id: self.public.id(), bytes });
    }
}

impl FromStr for PrivateKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let rest = text.trim().strip_prefix(PRIVATE);
        let rest = rest.ok_or(NoteError::PrivateKey("it doesn't begin with PRIVATE+KEY+"))?;
        let KeyText { name, id, signs, bytes: seed } = split(rest).map_err(NoteError::PrivateKey)?;
        let unusable = |_| NoteError::PrivateKey("the key can't be used");
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(unusable)?;
        let public = PublicKey { name, signs, bytes: public(&pair) };
        if public.id() != id {
            return Err(NoteError::PrivateKey("the id isn't that of the key"));
        }
        Ok(Self { public, pair, seed })
    }
}

fn public(pair: &Ed25519KeyPair) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(pair.public_key().as_ref());
    bytes
}

/// Returns what a cosignature signs.
fn timed(text: &str, time_s: u64) -> String {
    format!("cosignature/v1\ntime {time_s}\n{text}")
}

/// A text with signatures, of which none was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The signed text, with its last newline.
    text: String,
    signatures: Vec<Signature>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    name: String,
    id: [u8; ID_BYTES],
    bytes: Vec<u8>,
}

impl Note {
    /// A note without a signature. The text consists of lines that aren't empty, each with its newline.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self { text, signatures: Vec::new() }
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads the notes in a text, one after the other, with or without empty lines between them. The texts of the notes
    /// have no empty lines, as those of checkpoints don't.
    ///
    /// # Errors
    /// [`NoteError::Form`], with the line.
    pub fn read_all(text: &str) -> Result<Vec<Self>, NoteError> {
        let mut notes = Vec::new();
        let mut lines = text.split_inclusive('\n').enumerate().map(|(at, line)| (at + 1, line)).peekable();
        while lines.next_if(|(_, line)| *line == "\n").is_some() {}
        while lines.peek().is_some() {
            let mut note = Self::new(String::new());
            let mut at = 0;
            for (line, words) in lines.by_ref() {
                at = line;
                if words == "\n" {
                    break;
                }
                if words.trim_end_matches('\n').contains(char::is_control) || !words.ends_with('\n') {
                    return Err(NoteError::Form { line, problem: "has a control character, or no end" });
                }
                note.text.push_str(words);
            }
            while let Some((line, words)) = lines.next_if(|(_, line)| line.starts_with(SIGNATURE)) {
                let signature = signature(words).map_err(|problem| NoteError::Form { line, problem })?;
                note.signatures.push(signature);
                if note.signatures.len() > SIGNATURES_MAX {
                    return Err(NoteError::Form { line, problem: "is one signature too many" });
                }
            }
            if note.signatures.is_empty() || note.text.is_empty() {
                return Err(NoteError::Form { line: at, problem: "isn't followed by a signature (`— NAME BASE64`)" });
            }
            notes.push(note);
            while lines.next_if(|(_, line)| *line == "\n").is_some() {}
        }
        Ok(notes)
    }

    /// Verifies that the note is signed by this key; returns the time that a cosignature states, in seconds since the
    /// Unix epoch.
    ///
    /// # Errors
    /// [`NoteError::Unsigned`] or [`NoteError::Forged`].
    pub fn verify(&self, key: &PublicKey) -> Result<Option<u64>, NoteError> {
        let id = key.id();
        // A name and an id that don't both match are another key's, which says nothing.
        let signatures = self.signatures.iter().filter(|one| one.name == key.name && one.id == id);
        let mut stated = Err(NoteError::Unsigned(key.name.clone()));
        for signature in signatures {
            let forged = || NoteError::Forged(key.name.clone());
            let (time, message, bytes) = match key.signs {
                Signs::Text => (None, self.text.clone(), signature.bytes.as_slice()),
                Signs::TextAndTime => {
                    let (time, bytes) = signature.bytes.split_first_chunk::<TIME_BYTES>().ok_or_else(forged)?;
                    let time = u64::from_be_bytes(*time);
                    (Some(time), timed(&self.text, time), bytes)
                }
            };
            UnparsedPublicKey::new(&ED25519, key.bytes).verify(message.as_bytes(), bytes).map_err(|_| forged())?;
            stated = Ok(time);
        }
        stated
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for Signature { name, id, bytes } in &self.signatures {
            writeln!(f, "{SIGNATURE}{name} {}", STANDARD.encode([id.as_slice(), bytes].concat()))?;
        }
        Ok(())
    }
}

/// Reads the line of a signature.
fn signature(line: &str) -> Result<Signature, &'static str> {
    let line = line.strip_suffix('\n').ok_or("has no end")?;
    let (name, bytes) = line.strip_prefix(SIGNATURE).and_then(|rest| rest.split_once(' ')).ok_or("has no signature")?;
    if !is_name(name) {
        return Err("has no name of a key");
    }
    let bytes = STANDARD.decode(bytes).map_err(|_| "isn't base64")?;
    let (id, bytes) = bytes.split_first_chunk().ok_or("is too short for a signature")?;
    Ok(Signature { name: name.to_owned(), id: *id, bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Go's implementation of the form (`golang.org/x/mod/sumdb/note`).
    const NEUMANN_PRIVATE: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const NEUMANN_PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const NEUMANN_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\n\
        — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    fn neumann() -> (PrivateKey, PublicKey, Note) {
        let notes = Note::read_all(NEUMANN_NOTE).unwrap();
        let [note] = <[Note; 1]>::try_from(notes).unwrap();
        (NEUMANN_PRIVATE.parse().unwrap(), NEUMANN_PUBLIC.parse().unwrap(), note)
    }

    #[test]
    fn a_note_of_another_implementation_is_verified_and_signed_alike() {
        let (private, public, note) = neumann();
        assert_eq!(note.verify(&public), Ok(None));
        let mut signed = Note::new(note.text().to_owned());
        private.sign(&mut signed, 0);
        assert_eq!(signed.to_string(), NEUMANN_NOTE);
        assert_eq!((private.public(), private.reveal().as_str()), (&public, NEUMANN_PRIVATE));
        assert_eq!(public.to_string(), NEUMANN_PUBLIC);
    }

    #[test]
    fn no_altered_bit_of_a_text_or_a_signature_passes() {
        let (_, public, note) = neumann();
        for place in 0..note.text.len() {
            let mut bytes = note.text.clone().into_bytes();
            bytes[place] ^= 1;
            let altered = Note { text: String::from_utf8(bytes).unwrap(), ..note.clone() };
            assert!(matches!(altered.verify(&public), Err(NoteError::Forged(_))), "{place}");
        }
        for bit in 0..note.signatures[0].bytes.len() * 8 {
            let mut altered = note.clone();
            altered.signatures[0].bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(altered.verify(&public), Err(NoteError::Forged(_))), "{bit}");
        }
    }

    #[test]
    fn another_key_and_another_name_have_signed_nothing() {
        let (_, public, note) = neumann();
        let other = PrivateKey::generate("PeterNeumann", Signs::Text).unwrap();
        let same_name = PublicKey { name: public.name.clone(), ..other.public };
        let same_key = PublicKey { name: "else".to_owned(), ..public };
        let same_but_kind = PublicKey { signs: Signs::TextAndTime, ..public };
        for key in [other.public(), &same_name, &same_key, &same_but_kind] {
            assert_eq!(note.verify(key), Err(NoteError::Unsigned(key.name.clone())));
        }
    }

    #[test]
    fn a_cosignature_covers_its_time_and_the_text_and_leaves_the_first_signature_valid() {
        let (_, public, mut note) = neumann();
        let cosigner = PrivateKey::generate("w/", Signs::TextAndTime).unwrap();
        cosigner.sign(&mut note, 1_679_315_147);
        let read = Note::read_all(&note.to_string()).unwrap().remove(0);
        assert_eq!(read, note);
        assert_eq!(note.verify(cosigner.public()), Ok(Some(1_679_315_147)));
        assert_eq!(note.verify(&public), Ok(None));
        // The form: key id, time in eight bytes, an Ed25519 signature of the text below two lines.
        let bytes = &note.signatures[1].bytes;
        assert_eq!(bytes.len(), 8 + 64);
        let message = format!("cosignature/v1\ntime 1679315147\n{}", note.text());
        UnparsedPublicKey::new(&ED25519, cosigner.public.bytes).verify(message.as_bytes(), &bytes[8..]).unwrap();
        for byte in 0..bytes.len() {
            let mut altered = note.clone();
            altered.signatures[1].bytes[byte] ^= 1;
            assert!(matches!(altered.verify(cosigner.public()), Err(NoteError::Forged(_))), "{byte}");
        }
    }

    #[test]
    fn keys_are_read_as_they_were_written_and_others_are_refused() {
        for signs in [Signs::Text, Signs::TextAndTime] {
            let key = PrivateKey::generate("some.example/log-", signs).unwrap();
            assert_eq!(key.reveal().parse::<PrivateKey>().unwrap().public(), key.public());
            assert_eq!(key.public().to_string().parse::<PublicKey>().as_ref(), Ok(key.public()));
        }
        let altered = [
            NEUMANN_PUBLIC.replace("Peter", "Paul"),
            NEUMANN_PUBLIC.replace("c74f20a3", "c74f20a4"),
            NEUMANN_PUBLIC.replace("+AR", "+BR"),
            NEUMANN_PUBLIC[..NEUMANN_PUBLIC.len() - 4].to_owned(),
            "PeterNeumann+c74f20a3".to_owned(),
            "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".to_owned(),
            NEUMANN_PRIVATE.to_owned(),
            String::new(),
        ];
        for text in altered {
            assert!(matches!(text.parse::<PublicKey>(), Err(NoteError::PublicKey(_))), "{text}");
        }
        for text in [NEUMANN_PUBLIC.to_owned(), NEUMANN_PRIVATE.replace("AYEK", "AYEL"), String::new()] {
            assert!(matches!(text.parse::<PrivateKey>(), Err(NoteError::PrivateKey(_))), "{text}");
        }
    }

    #[test]
    fn notes_are_read_one_after_the_other_and_what_is_no_note_is_refused_with_its_line() {
        let (_, public, note) = neumann();
        let three = format!("\n{note}{note}\n\n{note}\n");
        let read = Note::read_all(&three).unwrap();
        assert_eq!(read, [note.clone(), note.clone(), note]);
        assert!(read.iter().all(|note| note.verify(&public).is_ok()));
        assert_eq!(Note::read_all(""), Ok(Vec::new()));
        let line = |text: &str| match Note::read_all(text) {
            Err(NoteError::Form { line, .. }) => line,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(line("words\n"), 1);
        assert_eq!(line("words\n\nother\n"), 2);
        assert_eq!(line("words\n\n— name AAA\n"), 3);
        assert_eq!(line("words\n\n— name AAAA\n"), 3, "shorter than a key's id");
        assert_eq!(line("words\n\n—  AAAAAAAA\n"), 3);
        assert_eq!(line("words\n\n— name AAAAAAAA"), 3);
        assert_eq!(line("wo\trds\n\n— name AAAAAAAA\n"), 1);
        assert_eq!(line("words\r\n\n— name AAAAAAAA\n"), 1);
        let many = format!("words\n\n{}", "— name AAAAAAAA\n".repeat(SIGNATURES_MAX + 1));
        assert_eq!(line(&many), SIGNATURES_MAX + 3);
    }
}
