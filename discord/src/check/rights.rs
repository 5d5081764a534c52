//! Computes a bot's permissions in a channel by Discord's rules: its roles, then the channel's overwrites.

use serde_json::Value;

const ADMINISTRATOR: u64 = 1 << 3;
const REACT: u64 = 1 << 6;
pub(super) const VIEW: u64 = 1 << 10;
const SEND: u64 = 1 << 11;
const ATTACH: u64 = 1 << 15;
const HISTORY: u64 = 1 << 16;
const MAKE_THREADS: u64 = 1 << 35;
const SEND_IN_THREADS: u64 = 1 << 38;

/// What a bot does, which determines the permissions that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Reads, warns and starts threads.
    Broker,
    /// An agent's bot that the bridge posts with.
    Ours,
    /// A foreign bot, which posts in threads.
    Theirs,
}

/// Permissions by the names that Discord's pages use.
const NAMES: [(u64, &str); 7] = [
    (VIEW, "View Channel"),
    (SEND, "Send Messages"),
    (SEND_IN_THREADS, "Send Messages in Threads"),
    (MAKE_THREADS, "Create Public Threads"),
    (HISTORY, "Read Message History"),
    (ATTACH, "Attach Files"),
    (REACT, "Add Reactions"),
];

impl Needs {
    /// Returns the permissions.
    pub(crate) const fn permissions(self) -> u64 {
        match self {
            Self::Broker => VIEW | SEND | SEND_IN_THREADS | MAKE_THREADS | HISTORY | ATTACH,
            Self::Ours => VIEW | SEND | SEND_IN_THREADS | HISTORY | REACT | ATTACH,
            Self::Theirs => VIEW | SEND_IN_THREADS | HISTORY,
        }
    }
}

/// Returns the names of the lacking permissions.
pub(super) fn missing(held: u64, needs: Needs) -> Vec<&'static str> {
    let wanted = needs.permissions();
    NAMES.iter().filter(|(bit, _)| wanted & bit & !held != 0).map(|(_, name)| *name).collect()
}

fn bits(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns a member's permissions in a channel of a guild with these roles.
pub(super) fn held(guild: &str, roles: &Value, member: &Value, channel: &Value) -> u64 {
    // Every member has the role with the guild's own id.
    let has = |id: &str| id == guild || member["roles"].as_array().into_iter().flatten().any(|role| role == id);
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let own = each(roles).into_iter().filter(|role| role["id"].as_str().is_some_and(has));
    let base = own.fold(0, |all, role| all | bits(&role["permissions"]));
    if base & ADMINISTRATOR != 0 {
        return u64::MAX;
    }
    let user = member["user"]["id"].as_str().unwrap_or_default();
    let overwrites = each(&channel["permission_overwrites"]);
    let of = |fits: &dyn Fn(&str) -> bool| {
        let mine = overwrites.iter().filter(|one| one["id"].as_str().is_some_and(fits));
        mine.fold((0, 0), |(deny, allow), one| (deny | bits(&one["deny"]), allow | bits(&one["allow"])))
    };
    // Discord's order: everyone, then all of the member's roles together, then the member.
    let steps = [of(&|id| id == guild), of(&|id| id != guild && has(id)), of(&|id| id == user)];
    let held = steps.iter().fold(base, |held, (deny, allow)| held & !deny | allow);
    if held & VIEW == 0 { 0 } else { held }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_overrules_its_roles_and_they_overrule_everybody() {
        let role = |id: &str, bits: u64| json!({ "id": id, "permissions": bits.to_string() });
        let over =
            |id: &str, allow: u64, deny: u64| json!({ "id": id, "allow": allow.to_string(), "deny": deny.to_string() });
        let roles = json!([role("1", VIEW | SEND), role("2", HISTORY), role("3", ADMINISTRATOR)]);
        let member = |own: &[&str]| json!({ "roles": own, "user": { "id": "9" } });
        let rights = |own: &[&str], overwrites: Value| {
            held("1", &roles, &member(own), &json!({ "permission_overwrites": overwrites }))
        };
        assert_eq!(rights(&[], json!([])), VIEW | SEND);
        assert_eq!(rights(&["2"], json!([])), VIEW | SEND | HISTORY);
        assert_eq!(rights(&["3"], json!([over("9", 0, VIEW)])), u64::MAX, "an administrator may everything");
        assert_eq!(rights(&[], json!([over("1", 0, SEND)])), VIEW);
        assert_eq!(rights(&["2"], json!([over("1", 0, SEND), over("2", SEND, 0)])), VIEW | SEND | HISTORY);
        assert_eq!(rights(&["2"], json!([over("2", SEND, 0), over("9", 0, SEND)])), VIEW | HISTORY);
        assert_eq!(rights(&["2"], json!([over("9", 0, VIEW)])), 0, "who sees nothing can do nothing");
        assert_eq!(rights(&[], json!([over("5", REACT, 0)])), VIEW | SEND, "another's role");
    }

    #[test]
    fn what_is_lacking_is_called_as_discord_calls_it() {
        assert_eq!(missing(u64::MAX, Needs::Broker), [""; 0]);
        assert_eq!(missing(VIEW | SEND | HISTORY, Needs::Theirs), ["Send Messages in Threads"]);
        let all = missing(VIEW, Needs::Broker);
        let wanted = [
            "Send Messages",
            "Send Messages in Threads",
            "Create Public Threads",
            "Read Message History",
            "Attach Files",
        ];
        assert_eq!(all, wanted);
    }
}
