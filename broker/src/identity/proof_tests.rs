//! What tokens, sessions and links prove, and for how long.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use lastword_core::input::{NewToken, Registration};
use lastword_core::{Core, Input, Out};
use lastword_facts::fact::{Kind, Profile};
use lastword_facts::names::AgentName;
use lastword_wire::Scope;

use super::*;
use crate::files::write_private;

/// The human `uma` and the agent `kilo`, whose first tokens are `uma-1` and `kilo-1`, and the directory of their tokens.
struct Team {
    core: Core,
    directory: Directory,
}

impl Team {
    fn new() -> Self {
        let mut team = Self { core: Core::default(), directory: Directory::default() };
        team.give(0, Input::Bootstrap(registration("uma", Kind::Human)));
        team.give(0, Input::Register(team.proof("uma-1"), registration("kilo", Kind::Agent)));
        team
    }

    fn give(&mut self, at: u64, input: Input) {
        let mut out = Out::default();
        self.core.handle(Time(at), input, &mut out);
        let changes: Vec<Change> =
            out.entries.iter().filter_map(|entry| Change::of(&entry.fact, self.core.state())).collect();
        assert_eq!(changes.len(), 1, "the input was refused");
        changes.into_iter().for_each(|change| self.directory.make(change));
    }

    fn proof(&self, token: &str) -> Principal {
        self.core.state().prove(&credential(token)).unwrap()
    }

    fn rekey(&mut self, at: u64, old: &str, new: &str, expires_in_ms: Option<u64>, overlap_ms: u64) {
        let token = NewToken { credential: credential(new), expires_in_ms, overlap_ms };
        self.give(at, Input::Rekey(self.proof("uma-1"), self.proof(old).agent(), token));
    }

    /// Asserts that the directory as it was changed, and one that is read from the state, prove this.
    fn proves(&self, token: &str, at: u64, expected: Proof) {
        for directory in [&self.directory, &Directory::of(self.core.state())] {
            assert_eq!(directory.prove(&credential(token), || Time(at)), expected, "{token} at {at}");
        }
    }

    /// Asserts the same of an owner's current token.
    fn current(&self, owner: Principal, at: u64, expected: Option<&str>) {
        let expected = expected.map(|token| (credential(token), owner));
        for directory in [&self.directory, &Directory::of(self.core.state())] {
            assert_eq!(directory.proof_of(owner.agent(), Time(at)), expected, "at {at}");
            assert_eq!(directory.len(), self.directory.len());
        }
    }
}

fn registration(name: &str, kind: Kind) -> Registration {
    let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
    let credential = credential(&format!("{name}-1"));
    Registration {
        name: AgentName::new(name).unwrap(),
        kind,
        profile,
        credential,
        role: None,
        display_name: None,
        key: None,
    }
}

/// Spellings of a signed text that say the same but weren't signed, and texts that say more or something else.
fn forgeries(text: &str) -> Vec<String> {
    let mac = text.rfind('.').unwrap() + 1;
    let (start, mac) = text.split_at(mac);
    let other = if mac.starts_with('0') { "1" } else { "0" };
    let plus = start.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
    vec![
        format!("{start}{}", mac.to_uppercase()),
        format!("{start}{other}{}", &mac[1..]),
        format!("{}+{}{mac}", &start[..plus], &start[plus..]),
        format!("{text}.0"),
        start.to_owned(),
        String::new(),
    ]
}

#[test]
fn a_token_proves_its_owner_until_it_expires_and_the_one_before_it_for_the_overlap() {
    let mut team = Team::new();
    let (uma, kilo) = (team.proof("uma-1"), team.proof("kilo-1"));
    team.proves("kilo-1", 0, Proof::Valid(kilo));
    team.proves("nobody", 0, Proof::Unknown);
    assert_eq!(team.directory.len(), 2);
    team.rekey(100_000, "kilo-1", "kilo-2", Some(600_000), 60_000);
    team.proves("kilo-1", 159_999, Proof::Valid(kilo));
    team.proves("kilo-1", 160_000, Proof::Expired(Time(160_000)));
    team.proves("kilo-2", 699_999, Proof::Valid(kilo));
    team.proves("kilo-2", 700_000, Proof::Expired(Time(700_000)));
    team.proves("kilo-2", 700_001, Proof::Expired(Time(700_000)));
    team.proves("uma-1", 700_001, Proof::Valid(uma));
    team.current(kilo, 100_000, Some("kilo-2"));
    team.current(kilo, 699_999, Some("kilo-2"));
    team.current(kilo, 700_000, None);
    team.current(kilo, 700_001, None);
    team.current(uma, 700_001, Some("uma-1"));
    assert_eq!(team.directory.len(), 2, "a former token counts no second time");
    team.give(700_001, Input::Remove(uma, kilo.agent()));
    team.proves("kilo-2", 0, Proof::Unknown);
    team.proves("uma-1", 0, Proof::Valid(uma));
    team.current(uma, 0, Some("uma-1"));
    assert_eq!(team.directory.len(), 1);
}

#[test]
fn a_session_proves_its_human_until_it_expires_or_ends_or_the_human_gets_another_token() {
    let mut team = Team::new();
    let signer = TurnSigner::ephemeral().unwrap();
    let (uma, kilo) = (team.proof("uma-1"), team.proof("kilo-1"));
    let sign = |until| signer.sign_session(uma.agent(), &credential("uma-1"), Time(until));
    let (value, other) = (sign(5_000), sign(6_000));
    let session = signer.verify_session(&value, &team.directory, Time(4_999)).unwrap();
    assert_eq!((session.principal, session.token), (uma, credential("uma-1")));
    let forms = signer.verify_session(&other, &team.directory, Time(4_999)).unwrap().forms;
    assert!(session.forms.len() == 32 && session.forms != forms, "a form is of one session");
    let verify = |value: &str, at| signer.verify_session(value, &team.directory, Time(at)).is_some();
    assert!(!verify(&value, 5_000) && !verify(&value, 5_001), "it has expired");
    for forgery in forgeries(&value) {
        assert!(!verify(&forgery, 0), "{forgery}");
    }
    let agent = signer.sign_session(kilo.agent(), &credential("kilo-1"), Time(5_000));
    assert!(!verify(&agent, 0), "an agent has no session");
    let foreign = TurnSigner::ephemeral().unwrap().sign_session(uma.agent(), &credential("uma-1"), Time(5_000));
    assert!(!verify(&foreign, 0), "another server signed it");
    signer.end_session(&value, Time(10)).unwrap();
    signer.end_session(&value, Time(20)).expect("it was ended, which is what was asked for");
    assert!(!verify(&value, 20) && verify(&other, 20));
    team.rekey(30, "uma-1", "uma-2", None, 60_000);
    assert!(signer.verify_session(&other, &team.directory, Time(30)).is_none(), "it is of the former token");
}

#[test]
fn a_sign_ins_token_is_a_humans_and_does_everything() {
    let team = Team::new();
    let signer = TurnSigner::ephemeral().unwrap();
    let (uma, kilo) = (team.proof("uma-1"), team.proof("kilo-1"));
    let text = signer.sign_bearer(uma.agent(), &credential("uma-1"), Time(5_000));
    let verify = |text: &str| signer.verify_bearer(text, &team.directory, Time(0));
    let expected = Bearer { principal: uma, credential: credential("uma-1"), until: Time(5_000), scopes: Scopes::ALL };
    assert_eq!(verify(&text), Some(expected));
    for forgery in forgeries(&text) {
        assert_eq!(verify(&forgery), None, "{forgery}");
    }
    assert_eq!(verify(&signer.sign_bearer(kilo.agent(), &credential("kilo-1"), Time(5_000))), None);
    signer.end(&text, Time(5_000), Time(0)).unwrap();
    assert_eq!(verify(&text), None);
}

#[test]
fn a_narrowed_token_does_what_was_signed_and_no_more() {
    let team = Team::new();
    let signer = TurnSigner::ephemeral().unwrap();
    let kilo = team.proof("kilo-1");
    let scopes = Scopes::of(&[Scope::Read, Scope::Work]);
    let text = signer.sign_narrowed(kilo.agent(), &credential("kilo-1"), scopes, Time(5_000));
    let verify = |text: &str| signer.verify_bearer(text, &team.directory, Time(0));
    let expected = Bearer { principal: kilo, credential: credential("kilo-1"), until: Time(5_000), scopes };
    assert_eq!(verify(&text), Some(expected));
    assert!(scopes.has(Scope::Work) && !scopes.has(Scope::Send));
    for forgery in forgeries(&text) {
        assert_eq!(verify(&forgery), None, "{forgery}");
    }
    // `read` is bit 0, `work` is bit 2 and `manage` is bit 6.
    assert!(text.starts_with("lwn_") && text.contains(".5."), "{text}");
    assert_eq!(verify(&text.replacen(".5.", ".69.", 1)), None);
    assert_eq!(verify(&text.replacen("lwn_", "lws_", 1).replacen(".5.", ".", 1)), None);
    signer.end(&text, Time(5_000), Time(0)).unwrap();
    assert_eq!(verify(&text), None);
}

#[test]
fn a_secret_of_a_sign_in_is_derived_from_its_cookie_and_its_use() {
    let signer = TurnSigner::ephemeral().unwrap();
    let derived = signer.derive("state", "cookie");
    assert_eq!((derived.len(), &derived), (64, &signer.derive("state", "cookie")));
    for other in [
        signer.derive("nonce", "cookie"),
        signer.derive("state", "biscuit"),
        TurnSigner::ephemeral().unwrap().derive("state", "cookie"),
    ] {
        assert_ne!(other, derived);
    }
}

#[test]
fn a_session_lasts_a_week_and_a_link_a_quarter_of_an_hour() {
    assert_eq!(SESSION_MS, 604_800_000);
    let codes = SignInCode::default();
    let (code, _) = codes.mint(Time(1_000), None).unwrap();
    assert_eq!(code.reveal().len(), 64);
    assert!(codes.spend(code.reveal(), Time(901_000)).is_none());
    assert!(codes.spend(code.reveal(), Time(900_999)).is_some());
}

#[test]
fn the_key_is_made_once_and_a_damaged_or_unreadable_one_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_SECRET_KEY);
    let token = TurnSigner::open(&Files::local(dir.path())).unwrap().sign(TurnId(3), AgentId(1));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(TurnSigner::open(&Files::local(dir.path())).unwrap().verify(&token, AgentId(1)), Some(TurnId(3)));
    fs::write(&path, "short").unwrap();
    let damaged = TurnSigner::open(&Files::local(dir.path())).err().unwrap().to_string();
    assert!(damaged.contains("secret.key is damaged"), "{damaged}");
    fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    assert!(TurnSigner::open(&Files::local(dir.path())).is_err(), "what can't be read isn't missing");
    assert!(Spent::open(&Files::local(dir.path()), FILE_SECRET_KEY).is_err(), "nor is a list");
}

#[test]
fn a_private_file_is_its_owners_whatever_lay_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (path, draft) = (dir.path().join("list"), dir.path().join("list.new"));
    fs::write(&draft, "open to all").unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o666)).unwrap();
    write_private(&path, b"one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!draft.exists());
    fs::create_dir(&draft).unwrap();
    let error = write_private(&path, b"two").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory, "the error is about what is in the way");
    assert_eq!(fs::read(&path).unwrap(), b"one");
}

#[test]
fn hexadecimal_of_either_case_and_the_right_length_is_read() {
    assert_eq!(hex(&[0x0f, 0xa0]), "0fa0");
    assert_eq!(unhex("0fA0"), Some([0x0f, 0xa0]));
    for bad in ["0fa", "0fa00", "0fg0", "éé", "0f+0"] {
        assert_eq!(unhex::<2>(bad), None, "{bad}");
    }
}
