//! By what a person of the platform is heard: a place among the humans of the settings, or a role of the server. What the
//! person may do then is the broker's to judge, by the role of its human in the workspace (H7).

use lastword_facts::fact::Role;

use super::ids::{ChannelId, RoleId};
use super::post::Person;
use super::settings::Settings;

/// By what a person is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is one of `humans`.
    Listed,
    /// It has a role of the server: the highest role in the workspace that its roles there give.
    Member(Role),
}

impl Heard {
    /// Returns the role in the workspace that follows from the server's.
    pub(crate) const fn role(self) -> Option<Role> {
        match self {
            Self::Listed => None,
            Self::Member(role) => Some(role),
        }
    }
}

/// Where a person acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In this channel, or in a thread of it.
    Channel(ChannelId),
    /// Wherever it is, without the channel's own lists: a stop is never shut out (H6).
    Anywhere,
}

impl Settings {
    /// Returns by what a person is heard; `None` if it isn't.
    pub(crate) fn heard(&self, reach: Reach, person: &Person) -> Option<Heard> {
        let own = match reach {
            Reach::Channel(channel) => self.own(channel),
            Reach::Anywhere => None,
        };
        if self.humans.contains_key(&person.user) {
            // Roles count only for those who aren't listed, so that a person has one name.
            let humans = own.and_then(|own| own.humans.as_ref());
            return humans.is_none_or(|humans| humans.contains(&person.user)).then_some(Heard::Listed);
        }
        // A person who is listed but out of service: no other name may stand in for theirs.
        if self.is_unread(&person.user.to_string()) {
            return None;
        }
        let narrowed = own.and_then(|own| own.roles.as_ref());
        let here = person.roles.iter().filter(|role| narrowed.is_none_or(|narrowed| narrowed.contains(role)));
        // Roles are ordered from owner to viewer.
        here.filter_map(|role| self.roles.get(role)).min().copied().map(Heard::Member)
    }

    /// Returns the roles of the server whose members are heard in a channel.
    pub fn roles_in(&self, channel: ChannelId) -> impl Iterator<Item = RoleId> {
        let narrowed = self.own(channel).and_then(|own| own.roles.as_ref());
        self.roles.keys().copied().filter(move |role| narrowed.is_none_or(|narrowed| narrowed.contains(role)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_channel::ChannelSettings;
    use crate::ids::UserId;
    use crate::settings::tests::settings;

    const MODS: RoleId = RoleId::new(50);
    const CREW: RoleId = RoleId::new(51);
    const OTHER: RoleId = RoleId::new(52);
    const HERE: ChannelId = ChannelId::new(1);
    const THERE: ChannelId = ChannelId::new(2);

    fn person(user: u64, roles: &[RoleId]) -> Person {
        Person { user: UserId::new(user), name: "zoe".into(), roles: roles.iter().copied().collect() }
    }

    fn all() -> Settings {
        let own = ChannelSettings {
            humans: Some([UserId::new(8)].into()),
            roles: Some([CREW].into()),
            ..ChannelSettings::default()
        };
        let roles = [(MODS, Role::Operator), (CREW, Role::Approver)].into();
        Settings { roles, by_channel: [(HERE, own)].into(), channels: [HERE, THERE].into(), ..settings() }
    }

    #[test]
    fn a_member_has_the_highest_of_the_roles_that_count_where_it_acts() {
        let heard = |reach, roles: &[RoleId]| all().heard(reach, &person(9, roles));
        assert_eq!(heard(Reach::Channel(THERE), &[CREW, MODS, OTHER]), Some(Heard::Member(Role::Operator)));
        assert_eq!(heard(Reach::Channel(HERE), &[CREW, MODS]), Some(Heard::Member(Role::Approver)), "narrowed");
        assert_eq!(heard(Reach::Channel(HERE), &[MODS]), None);
        assert_eq!(heard(Reach::Channel(THERE), &[OTHER]), None);
        assert_eq!(heard(Reach::Channel(THERE), &[]), None);
        assert_eq!(heard(Reach::Anywhere, &[MODS]), Some(Heard::Member(Role::Operator)), "a stop");
    }

    #[test]
    fn who_is_listed_is_heard_by_the_list_alone() {
        let all = all();
        assert_eq!(all.heard(Reach::Channel(THERE), &person(7, &[MODS])), Some(Heard::Listed));
        assert_eq!(all.heard(Reach::Channel(HERE), &person(7, &[CREW])), None, "the channel's own list");
        assert_eq!(all.heard(Reach::Anywhere, &person(7, &[])), Some(Heard::Listed));
        assert_eq!(all.heard(Reach::Channel(HERE), &person(8, &[])), None, "8 isn't one of the bridge's humans");
        let out = Settings { unread: vec![("9".into(), "no such file".into())], ..all };
        assert_eq!(
            out.heard(Reach::Channel(THERE), &person(9, &[MODS])),
            None,
            "listed, with a token that can't be read"
        );
    }
}
