//! The addresses of NATS servers, and the password or the token that each of them may have.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Auth, ConnectOptions, ReconnectToServer, ServerAddr};
use percent_encoding::percent_decode_str;

/// Returns an address without its password or token, as people and logs may see it.
#[must_use]
pub fn shown_address(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

/// What an address has in front of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Login {
    Password { user: String, password: String },
    Token(String),
}

impl Login {
    /// Returns what an address has, as it was before it was encoded.
    fn of(address: &ServerAddr) -> Result<Option<Self>, String> {
        let decoded = |part: &str| {
            let text = percent_decode_str(part).decode_utf8();
            text.map(|text| text.into_owned()).map_err(|_| "its user or password isn't UTF-8".to_owned())
        };
        Ok(match (address.username(), address.password()) {
            (None, None) => None,
            (Some(token), None) => Some(Self::Token(decoded(token)?)),
            (user, Some(password)) => {
                Some(Self::Password { user: decoded(user.unwrap_or_default())?, password: decoded(password)? })
            }
        })
    }
}

/// The servers of a connection. The client library ignores what their addresses have in front of the host, and shows
/// whole addresses in its log.
#[derive(Debug)]
pub(super) struct Servers {
    /// Each address without its login, and the login.
    known: Vec<(ServerAddr, Option<Login>)>,
    /// Which server is tried next, and the login of the one that is tried now.
    turn: Mutex<(usize, Option<Login>)>,
}

impl Servers {
    /// # Errors
    /// An address isn't one.
    pub(super) fn parse(addresses: &[String]) -> Result<Self, String> {
        let known = addresses.iter().map(|address| {
            let unusable = |problem: String| format!("{}: {problem}", shown_address(address));
            let parsed: ServerAddr = address.parse().map_err(|error: std::io::Error| unusable(error.to_string()))?;
            let login = Login::of(&parsed).map_err(unusable)?;
            let bare = shown_address(address).parse().map_err(|error: std::io::Error| unusable(error.to_string()))?;
            Ok((bare, login))
        });
        let known = known.collect::<Result<Vec<_>, String>>()?;
        // Not each node begins with the same server.
        let first = std::hash::RandomState::new().hash_one(known.len());
        let first = usize::try_from(first).unwrap_or_default() % known.len().max(1);
        Ok(Self { known, turn: Mutex::new((first, None)) })
    }

    pub(super) fn addresses(&self) -> Vec<ServerAddr> {
        self.known.iter().map(|(address, _)| address.clone()).collect()
    }

    /// Returns options that send each server its own login; `None` if no address has one.
    pub(super) fn logging_in(self: &Arc<Self>) -> Option<ConnectOptions> {
        self.known.iter().find(|(_, login)| login.is_some())?;
        let (chosen, asked) = (Arc::clone(self), Arc::clone(self));
        let options = ConnectOptions::with_auth_callback(move |_| std::future::ready(Ok(chosen.auth())));
        let options = options.reconnect_to_server_callback(move |pool, _| {
            let addresses: Vec<_> = pool.into_iter().map(|server| server.addr).collect();
            std::future::ready(asked.next(&addresses).map(|addr| ReconnectToServer { addr, delay: None }))
        });
        // Nobody said which of several logins a server has that another one names.
        Some(if self.common().is_some() { options } else { options.ignore_discovered_servers() })
    }

    /// Returns the login that all addresses have.
    fn common(&self) -> Option<&Login> {
        let (_, first) = self.known.first()?;
        first.as_ref().filter(|_| self.known.iter().all(|(_, login)| login == first))
    }

    /// Chooses the next server of the pool, and its login.
    fn next(&self, pool: &[ServerAddr]) -> Option<ServerAddr> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let next = pool.get(turn.0 % pool.len().max(1))?.clone();
        let same = |known: &ServerAddr| (known.host(), known.port()) == (next.host(), next.port());
        let known = self.known.iter().find(|(address, _)| same(address));
        *turn = (turn.0.wrapping_add(1), known.map_or_else(|| self.common().cloned(), |(_, login)| login.clone()));
        Some(next)
    }

    fn auth(&self) -> Auth {
        let mut auth = Auth::new();
        match self.turn.lock().unwrap_or_else(PoisonError::into_inner).1.clone() {
            Some(Login::Password { user, password }) => (auth.username, auth.password) = (Some(user), Some(password)),
            Some(Login::Token(token)) => auth.token = Some(token),
            None => {}
        }
        auth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(addresses: &[&str]) -> Servers {
        Servers::parse(&addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn password(user: &str, password: &str) -> Option<Login> {
        Some(Login::Password { user: user.to_owned(), password: password.to_owned() })
    }

    #[test]
    fn an_address_has_a_password_a_token_or_nothing_and_is_shown_without_it() {
        for (address, login, shown) in [
            ("nats://h:4222", None, "nats://h:4222"),
            ("h", None, "h"),
            ("nats://u:p@h:4222", password("u", "p"), "nats://h:4222"),
            ("tls://u:pa@ss@h", password("u", "pa@ss"), "tls://h"),
            ("nats://a%40b:%2Fp%25%3A@[::1]:4222", password("a@b", "/p%:"), "nats://[::1]:4222"),
            ("nats://:p@h", password("", "p"), "nats://h"),
            ("nats://t%2Bk%20n@h", Some(Login::Token("t+k n".to_owned())), "nats://h"),
            ("token@h:4222", Some(Login::Token("token".to_owned())), "h:4222"),
        ] {
            let found = servers(&[address]);
            assert_eq!(found.known[0].1, login, "{address}");
            assert_eq!(shown_address(address), shown);
            assert_eq!(found.known[0].0, shown.parse().unwrap(), "the client library sees no login");
        }
        assert!(Servers::parse(&["nats://%ff:p@h".to_owned()]).is_err());
        let refused = Servers::parse(&["http://u:secret@h".to_owned()]).unwrap_err();
        assert!(refused.starts_with("http://h: ") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn each_server_gets_its_own_login_and_one_that_is_discovered_what_all_have() {
        let found = servers(&["nats://a:1@h1", "nats://t@h2", "nats://h3"]);
        let pool = found.addresses();
        for _ in 0..6 {
            let chosen = found.next(&pool).unwrap();
            let auth = found.auth();
            let sent = (auth.username.as_deref(), auth.password.as_deref(), auth.token.as_deref());
            let wanted = match chosen.host() {
                "h1" => (Some("a"), Some("1"), None),
                "h2" => (None, None, Some("t")),
                _ => (None, None, None),
            };
            assert_eq!(sent, wanted, "{chosen:?}");
        }
        assert_eq!(found.common(), None);
        let discovered: Vec<ServerAddr> = vec!["10.0.0.9:4222".parse().unwrap()];
        let same = servers(&["nats://a:1@h1", "nats://a:1@h2"]);
        same.next(&discovered).unwrap();
        assert_eq!(same.auth().password.as_deref(), Some("1"));
        found.next(&discovered).unwrap();
        assert_eq!(found.auth().password, None);
        assert!(servers(&["nats://h"]).common().is_none());
    }
}
