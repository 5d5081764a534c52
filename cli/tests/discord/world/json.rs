//! Discord's objects as a bot receives them.

use serde_json::{Value, json};

use super::model::{Bot, Channel, Discord, Id, Message, PUBLIC_THREAD, User, intent, may, time_ms};

/// Parses an id: a number in a string.
pub(crate) fn id(value: &Value) -> Option<Id> {
    value.as_str()?.parse().ok()
}

/// Formats a time like Discord.
pub(crate) fn time(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (h, m, s, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    // Converts days to a date, by eras of 400 years that begin in March.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}000+00:00")
}

pub(crate) fn user(user: &User) -> Value {
    json!({
        "id": user.id.to_string(), "username": user.name, "discriminator": "0", "global_name": null, "avatar": null,
        "bot": user.bot, "public_flags": 0,
    })
}

/// Returns the user object that a bot gets of itself.
pub(crate) fn current_user(of: &User) -> Value {
    let mut value = user(of);
    value["mfa_enabled"] = json!(true);
    value["verified"] = json!(true);
    value["email"] = Value::Null;
    value["flags"] = json!(0);
    value
}

/// Returns a guild member, without the user.
pub(crate) fn member(discord: &Discord, of: Id) -> Value {
    let own = discord.bots.get(&of).map(|bot| bot.role);
    let given = discord.appointed.get(&of).into_iter().flatten().copied();
    let roles: Vec<String> = own.into_iter().chain(given).map(|role| role.to_string()).collect();
    json!({
        "roles": roles, "nick": null, "avatar": null, "joined_at": time(time_ms(discord.guild)), "deaf": false,
        "mute": false, "flags": 0, "pending": false, "premium_since": null, "communication_disabled_until": null,
    })
}

pub(crate) fn full_member(discord: &Discord, of: &User) -> Value {
    let mut value = member(discord, of.id);
    value["user"] = user(of);
    value
}

/// Returns an application's flags: its privileged intents, as in fewer than a hundred guilds.
pub(crate) fn application_flags(bot: &Bot) -> u64 {
    let limited = [(intent::PRESENCES, 1 << 13), (intent::MEMBERS, 1 << 15), (intent::CONTENT, 1 << 19)];
    limited.iter().filter(|(intent, _)| bot.privileged & intent != 0).map(|(_, flag)| flag).sum()
}

pub(crate) fn application(discord: &Discord, bot: &Bot) -> Value {
    let of = discord.users.get(&bot.id).map(user).unwrap_or_default();
    json!({
        "id": bot.application.to_string(), "name": of["username"], "description": "", "icon": null, "bot_public": true,
        "bot_require_code_grant": false, "flags": application_flags(bot), "bot": of, "team": null, "verify_key": "00",
        "redirect_uris": [],
    })
}

fn role(id: Id, name: &str, permissions: u64, position: u64) -> Value {
    json!({
        "id": id.to_string(), "name": name, "permissions": permissions.to_string(), "position": position, "color": 0,
        "colors": {"primary_color": 0, "secondary_color": null, "tertiary_color": null}, "hoist": false,
        "managed": position > 0, "mentionable": false, "flags": 0, "icon": null, "unicode_emoji": null,
    })
}

/// Returns the roles: everyone's, which grants nothing, those that people are given, and one per bot.
pub(crate) fn roles(discord: &Discord) -> Vec<Value> {
    let mut roles = vec![role(discord.guild, "@everyone", 0, 0)];
    roles.extend(discord.roles.iter().map(|(id, name)| role(*id, name, 0, 1)));
    for bot in discord.bots.values() {
        let name = discord.users.get(&bot.id).map(|user| user.name.as_str()).unwrap_or_default();
        roles.push(role(bot.role, name, bot.permissions, 1));
    }
    roles
}

pub(crate) fn guild(discord: &Discord) -> Value {
    json!({
        "id": discord.guild.to_string(), "name": "A guild", "owner_id": "1", "afk_channel_id": null, "afk_timeout": 300,
        "application_id": null, "banner": null, "default_message_notifications": 0, "description": null,
        "discovery_splash": null, "emojis": [], "explicit_content_filter": 0, "features": [], "icon": null,
        "mfa_level": 0, "nsfw_level": 0, "preferred_locale": "en-US", "premium_progress_bar_enabled": false,
        "premium_tier": 0, "public_updates_channel_id": null, "roles": roles(discord), "rules_channel_id": null,
        "splash": null, "stickers": [], "system_channel_flags": 0, "system_channel_id": null,
        "vanity_url_code": null, "verification_level": 0, "widget_channel_id": null, "widget_enabled": false,
    })
}

/// Returns the guild as sent over the gateway: with the channels and members that the bot sees.
pub(crate) fn guild_create(discord: &Discord, bot: Id, intents: u64) -> Value {
    let mut value = guild(discord);
    let seen = |c: &&Channel| discord.permissions(bot, c.id) & may::VIEW != 0;
    let (threads, channels): (Vec<&Channel>, Vec<&Channel>) =
        discord.channels.values().filter(seen).partition(|c| c.kind == PUBLIC_THREAD);
    let of = |list: Vec<&Channel>| list.iter().map(|c| channel(discord, c.id, Some(bot))).collect::<Vec<_>>();
    value["channels"] = json!(of(channels));
    value["threads"] = json!(of(threads.into_iter().filter(|t| !t.archived).collect()));
    let all = intents & intent::MEMBERS != 0;
    let members = discord.users.values().filter(|user| all || user.id == bot);
    value["members"] = json!(members.map(|user| full_member(discord, user)).collect::<Vec<_>>());
    for empty in ["voice_states", "presences", "stage_instances", "guild_scheduled_events", "soundboard_sounds"] {
        value[empty] = json!([]);
    }
    value["joined_at"] = json!(time(time_ms(discord.guild)));
    value["large"] = json!(false);
    value["unavailable"] = json!(false);
    value["member_count"] = json!(discord.users.len());
    value
}

/// Returns a channel; for a thread, with whether the bot takes part.
pub(crate) fn channel(discord: &Discord, id: Id, bot: Option<Id>) -> Value {
    let Some(channel) = discord.channels.get(&id) else { return Value::Null };
    let last = channel.messages.last().map(Id::to_string);
    let mut value = json!({
        "id": id.to_string(), "type": channel.kind, "guild_id": discord.guild.to_string(), "name": channel.name,
        "parent_id": channel.parent.map(|id| id.to_string()), "last_message_id": last, "rate_limit_per_user": 0,
        "flags": 0,
    });
    if channel.kind != PUBLIC_THREAD {
        let overwrite = |(user, deny): (&Id, &u64)| json!({"id": user.to_string(), "type": 1, "allow": "0", "deny": deny.to_string()});
        value["permission_overwrites"] = json!(channel.denied.iter().map(overwrite).collect::<Vec<_>>());
        value["position"] = json!(0);
        value["nsfw"] = json!(false);
        value["topic"] = Value::Null;
        return value;
    }
    let since = time(time_ms(id));
    value["owner_id"] = json!(channel.owner.to_string());
    value["message_count"] = json!(channel.messages.len());
    value["total_message_sent"] = json!(channel.messages.len());
    value["member_count"] = json!(channel.members.len());
    value["thread_metadata"] = json!({
        "archived": channel.archived, "auto_archive_duration": 1440, "archive_timestamp": time(channel.archive_ms),
        "locked": channel.locked,
        "create_timestamp": since,
    });
    if let Some(bot) = bot.filter(|bot| channel.members.contains(bot)) {
        value["member"] = json!({
            "id": id.to_string(), "user_id": bot.to_string(), "join_timestamp": since, "flags": 0,
        });
    }
    value
}

/// Returns whether a bot gets a message's text.
fn reads(discord: &Discord, message: &Message, bot: Id, intents: u64) -> bool {
    let privileged = discord.bots.get(&bot).map_or(0, |b| b.privileged);
    message.author.id == bot || message.mentions.contains(&bot) || privileged & intents & intent::CONTENT != 0
}

/// Returns a message as a bot with these intents sees it.
pub(crate) fn message(discord: &Discord, message: &Message, bot: Id, intents: u64) -> Value {
    let mut value = bare(discord, message, bot, intents);
    if let Some(replied) = message.reply_to {
        value["message_reference"] = json!({
            "type": 0, "message_id": replied.to_string(), "channel_id": message.channel.to_string(),
            "guild_id": discord.guild.to_string(),
        });
        let original = discord.messages.get(&replied).filter(|m| !m.deleted);
        value["referenced_message"] = original.map_or(Value::Null, |m| bare(discord, m, bot, intents));
    }
    value
}

fn bare(discord: &Discord, message: &Message, bot: Id, intents: u64) -> Value {
    let reads = reads(discord, message, bot, intents);
    let mentions: Vec<Value> = message.mentions.iter().filter_map(|id| discord.users.get(id)).map(user).collect();
    let mut value = json!({
        "id": message.id.to_string(), "channel_id": message.channel.to_string(), "author": user(&message.author),
        "type": message.kind, "content": if reads { message.content.as_str() } else { "" },
        "timestamp": time(time_ms(message.id)), "edited_timestamp": message.edited_ms.map(time), "tts": false,
        "mention_everyone": message.mention_everyone, "mentions": mentions,
        "mention_roles": message.mention_roles.iter().map(Id::to_string).collect::<Vec<_>>(),
        "attachments": if reads { json!(message.attachments) } else { json!([]) },
        "embeds": if reads { json!(message.embeds) } else { json!([]) },
        "components": if reads { json!(message.components) } else { json!([]) },
        "pinned": message.pinned, "flags": message.flags,
    });
    if let Some(webhook) = message.webhook {
        value["webhook_id"] = json!(webhook.to_string());
    }
    if let Some(nonce) = &message.nonce {
        value["nonce"] = nonce.clone();
    }
    if !message.reactions.is_empty() {
        let reaction = |(emoji, by): (&String, &std::collections::BTreeSet<Id>)| {
            json!({
                "emoji": {"id": null, "name": emoji}, "count": by.len(), "me": by.contains(&bot), "me_burst": false,
                "burst_colors": [], "count_details": {"burst": 0, "normal": by.len()},
            })
        };
        value["reactions"] = json!(message.reactions.iter().map(reaction).collect::<Vec<_>>());
    }
    if let Some(thread) = discord.thread_of(message.id) {
        value["thread"] = channel(discord, thread.id, Some(bot));
    }
    value
}
