//! `lastword discord init`: writes `[discord]` from names and tokens, each checked with Discord first.

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::path::{Path, PathBuf};

use lastword_broker::files::write_private;
use lastword_discord::bridge::settings::Secret;
use lastword_discord::{BROKER, Explorer, Named};
use lastword_facts::fact::Role;
use lastword_facts::names::AgentName;

use super::Context;
use super::discord::{InitArgs, check};
use crate::config::CONFIG_FILE;
use crate::discord::settings;
use crate::failure::Failure;
use crate::notify::private;
use crate::out::escape_line;
use crate::session::{Authority, confirmed};

/// The text that stands for standard input, or for none.
const STDIN: &str = "-";

/// What to do about a name that Discord doesn't have.
const WRONG_HUMAN: &str = "give the user name, as Discord shows it in the profile";
const WRONG_ROLE: &str = "give the role's name, as in Server Settings, Roles";

/// A bot whose token Discord knows.
struct Bot {
    name: String,
    explorer: Explorer,
    /// The path of the token's file, as the configuration has it.
    file: PathBuf,
    /// The token, unless it is in its file already.
    pasted: Option<String>,
}

/// Everything that is written.
struct Plan {
    bots: Vec<Bot>,
    channels: Vec<Named>,
    humans: Vec<Named>,
    /// The roles of the server, and what each gives.
    roles: Vec<(Named, Role)>,
}

pub(super) async fn init(args: InitArgs, cx: &Context) -> Result<(), Failure> {
    if let Some(variable) = cx.environment.agent {
        return Err(Failure::refused(format!("an agent is running this command ({variable} is set)"))
            .hint("set the bridge up in your own terminal: an agent has no use for the bots' tokens"));
    }
    let path = cx.settings.file.clone().unwrap_or_else(|| PathBuf::from(CONFIG_FILE));
    let old = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
    if cx.settings.discord.is_some() && !args.replace {
        return Err(Failure::refused(format!("{} already has [discord]", path.display()))
            .hint("edit it, or put another in its place: `lastword discord init --replace`"));
    }
    // Before anybody pastes a token.
    let access = cx.access(Authority::Act)?;
    let base = path.parent().unwrap_or(Path::new(""));
    let bots = bots(&args, base).await?;
    let broker = bots.first().ok_or_else(|| Failure::bug("no bot of the broker"))?;
    let channels = channels(&args, &broker.explorer).await?;
    let (humans, roles) = who(&args, &broker.explorer).await?;
    let plan = Plan { bots, channels, humans, roles };
    let table = plan.table(&args);
    let new = replaced(&old, &table)?;
    let pasted: Vec<(&Bot, &String)> = plan.bots.iter().filter_map(|bot| Some((bot, bot.pasted.as_ref()?))).collect();
    say(&format!("\n{}:\n\n{table}", path.display()))?;
    for (bot, _) in &pasted {
        say(&format!("{}: the token of {}, for its owner alone (0600)", base.join(&bot.file).display(), bot.name))?;
    }
    if !confirmed("write this?", args.yes)? {
        return Err(Failure::refused("nothing was written").hint("confirm in a script with --yes"));
    }
    for (bot, token) in &pasted {
        write_private(&base.join(&bot.file), format!("{token}\n").as_bytes())?;
    }
    let written: toml::Table = new.parse().map_err(Failure::bug)?;
    let table = written.get("discord").and_then(toml::Value::as_table);
    // Settings that can't be used never take the place of others.
    let settings = settings(table.ok_or_else(|| Failure::bug("no [discord]"))?, base, &cx.settings.data, access)?;
    fs::write(&path, &new)?;
    say(&format!("wrote {}\n", path.display()))?;
    check(&settings, cx).await
}

/// Writes a line for the human at the terminal; standard output holds the result of the checks alone.
fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(stderr().lock(), "{}", crate::out::escape(text))?)
}

/// Asks for a line; empty at the end of the input.
fn ask(question: &str) -> Result<String, Failure> {
    stderr().lock().write_all(format!("{question} ").as_bytes())?;
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Asks for a token, which isn't shown.
fn ask_hidden(question: &str) -> Result<String, Failure> {
    use crossterm::event::{Event, KeyCode, KeyModifiers, read};
    // Before the question: what is pasted as soon as it shows would be shown, too, and lost.
    crossterm::terminal::enable_raw_mode()?;
    let asked = stderr().lock().write_all(format!("{question} (not shown) ").as_bytes());
    let mut text = String::new();
    let typed = loop {
        if asked.is_err() {
            break Ok(false);
        }
        let key = match read() {
            Ok(Event::Key(key)) => key,
            Ok(_) => continue,
            Err(error) => break Err(error),
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.code == KeyCode::Enter {
            break Ok(true);
        } else if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            break Ok(false);
        } else if key.code == KeyCode::Backspace {
            text.pop();
        } else if let KeyCode::Char(c) = key.code {
            text.push(c);
        }
    };
    crossterm::terminal::disable_raw_mode()?;
    stderr().lock().write_all(b"\n")?;
    if typed? { Ok(text.trim().to_owned()) } else { Err(Failure::refused("nothing was written")) }
}

/// Connects as each bot, the broker's first, and prints their invite addresses.
async fn bots(args: &InitArgs, base: &Path) -> Result<Vec<Bot>, Failure> {
    let terminal = stdin().is_terminal();
    let mut bots = Vec::new();
    bots.push(match &args.bot_token_file {
        Some(file) => from_file(BROKER, file, args, base).await?,
        None if terminal => {
            unwritten(BROKER, args, base)?;
            pasted(BROKER, ask_hidden("token of the broker's bot")?, args).await?
        }
        None => {
            return Err(Failure::usage("the token of the broker's bot is missing")
                .hint("name its file with --bot-token-file, or run this command at a terminal"));
        }
    });
    for agent in &args.agents {
        if bots.iter().any(|bot| bot.name == agent.name) {
            return Err(Failure::usage(format!("{} has a bot already", agent.name)).hint("give each bot its own agent"));
        }
        bots.push(from_file(&agent.name, &agent.file, args, base).await?);
    }
    if bots.len() == 1 && !terminal {
        return Err(
            Failure::usage("no agent has a bot").hint("add --agent NAME=FILE, with the file of the bot's token")
        );
    }
    while terminal && args.agents.is_empty() {
        let name = ask("agent for which a bot of yours posts (empty: no more):")?;
        if name.is_empty() && bots.len() > 1 {
            break;
        }
        match AgentName::new(&name) {
            Ok(_) if bots.iter().any(|bot| bot.name == name) => say(&format!("{name} has a bot already"))?,
            Ok(_) => match unwritten(&name, args, base) {
                Ok(()) => bots.push(pasted(&name, ask_hidden(&format!("token of {name}'s bot"))?, args).await?),
                Err(failure) => say(&failure.message)?,
            },
            Err(error) => say(&format!("{name:?} {error}"))?,
        }
    }
    Ok(bots)
}

async fn from_file(name: &str, file: &Path, args: &InitArgs, base: &Path) -> Result<Bot, Failure> {
    if file == Path::new(STDIN) {
        unwritten(name, args, base)?;
        let token = std::io::read_to_string(stdin())?.trim().to_owned();
        return pasted(name, token, args).await;
    }
    let token = private("the token of", file).map_err(Failure::usage)?;
    let explorer = connect(name, &token, args).await?;
    // Paths in the configuration are relative to it.
    let here = base == Path::new("");
    let file = if here { file.to_owned() } else { std::path::absolute(file)? };
    Ok(Bot { name: name.to_owned(), explorer, file, pasted: None })
}

/// Returns the file of a token that is pasted.
fn file_of(name: &str) -> PathBuf {
    PathBuf::from(format!("discord-{name}.token"))
}

/// Refuses to write over the file of a token, before anybody pastes one.
fn unwritten(name: &str, args: &InitArgs, base: &Path) -> Result<(), Failure> {
    let file = base.join(file_of(name));
    if args.replace || !file.exists() {
        return Ok(());
    }
    let flag = if name == BROKER { "--bot-token-file".to_owned() } else { format!("--agent {name}=FILE") };
    Err(Failure::refused(format!("{} already exists", file.display()))
        .hint(format!("name it with {flag}, or write it anew with --replace")))
}

async fn pasted(name: &str, token: String, args: &InitArgs) -> Result<Bot, Failure> {
    let explorer = connect(name, &token, args).await?;
    let file = file_of(name);
    Ok(Bot { name: name.to_owned(), explorer, file, pasted: Some(token) })
}

async fn connect(name: &str, token: &str, args: &InitArgs) -> Result<Explorer, Failure> {
    let found = Explorer::connect(&Secret::new(token), args.api.as_deref(), name == BROKER).await;
    let explorer =
        found.map_err(|error| Failure::refused(format!("the bot of {name}: {}", error.message)).hint(error.hint))?;
    say(&format!("{name}: the bot {}. Invite it with:\n  {}", escape_line(&explorer.name), explorer.invite()))?;
    Ok(explorer)
}

/// Picks the channels by name.
async fn channels(args: &InitArgs, broker: &Explorer) -> Result<Vec<Named>, Failure> {
    let terminal = stdin().is_terminal() && args.channels.is_empty();
    let mut all = broker.channels().await.map_err(explored)?;
    while all.is_empty() && terminal {
        ask("the bot is in no server: open its address above, then press Enter")?;
        all = broker.channels().await.map_err(explored)?;
    }
    if !terminal {
        if args.channels.is_empty() {
            return Err(Failure::usage("no channel is named").hint("add --channel NAME"));
        }
        return args.channels.iter().map(|name| one(name, "channel", &all, "invite the broker's bot first")).collect();
    }
    let lines: String =
        all.iter().map(|c| format!("  #{} in {}\n", escape_line(&c.name), escape_line(&c.guild))).collect();
    say(&format!("channels:\n{}", lines.trim_end()))?;
    let mut picked = Vec::new();
    loop {
        let name = ask("channel (empty: no more):")?;
        match one(&name, "channel", &all, "choose one of the list") {
            _ if name.is_empty() && !picked.is_empty() => return Ok(picked),
            _ if name.is_empty() => say("the bridge needs a channel")?,
            Ok(channel) => picked.push(channel),
            Err(failure) => say(&failure.message)?,
        }
    }
}

/// Finds the humans, and the roles whose members act as such, by name.
async fn who(args: &InitArgs, broker: &Explorer) -> Result<(Vec<Named>, Vec<(Named, Role)>), Failure> {
    let (mut humans, mut roles) = (Vec::new(), Vec::new());
    for name in &args.humans {
        humans.push(one(name, "human", &people(broker, name).await?, WRONG_HUMAN)?);
    }
    if !args.roles.is_empty() {
        let all = broker.roles().await.map_err(explored)?;
        for role in &args.roles {
            roles.push((one(&role.name, "role", &all, WRONG_ROLE)?, role.gives));
        }
    }
    if !humans.is_empty() || !roles.is_empty() {
        return Ok((humans, roles));
    }
    if !stdin().is_terminal() {
        return Err(Failure::usage("nobody may speak as a human").hint("add --human NAME, or --role NAME=operator"));
    }
    loop {
        ask_humans(broker, &mut humans).await?;
        ask_roles(broker, &mut roles).await?;
        if !humans.is_empty() || !roles.is_empty() {
            return Ok((humans, roles));
        }
        say("the bridge needs a human or a role")?;
    }
}

async fn ask_humans(broker: &Explorer, picked: &mut Vec<Named>) -> Result<(), Failure> {
    loop {
        let name = ask("human who may speak to agents, by Discord name (empty: no more):")?;
        if name.is_empty() {
            return Ok(());
        }
        match one(&name, "human", &people(broker, &name).await?, WRONG_HUMAN) {
            Ok(human) => picked.push(human),
            Err(failure) => say(&failure.message)?,
        }
    }
}

async fn ask_roles(broker: &Explorer, picked: &mut Vec<(Named, Role)>) -> Result<(), Failure> {
    let all = broker.roles().await.map_err(explored)?;
    let lines: String =
        all.iter().map(|role| format!("  @{} in {}\n", escape_line(&role.name), escape_line(&role.guild))).collect();
    say(&format!("roles of the server:\n{}", lines.trim_end()))?;
    loop {
        let name = ask("role whose members may act as humans (empty: no more):")?;
        if name.is_empty() {
            return Ok(());
        }
        match one(&name, "role", &all, WRONG_ROLE) {
            Ok(role) if picked.iter().any(|(known, _)| *known == role) => say(&format!("{name} is listed already"))?,
            Ok(role) => picked.push((role, ask_gives()?)),
            Err(failure) => say(&failure.message)?,
        }
    }
}

/// Asks what the members of a role are in the workspace.
fn ask_gives() -> Result<Role, Failure> {
    loop {
        let word = ask("what they are here: owner, operator, approver or viewer:")?;
        match Role::from_word(&word) {
            Some(role) => return Ok(role),
            // Nothing more is to be read.
            None if word.is_empty() => return Err(Failure::refused("nothing was written")),
            None => say(&format!("{word:?} is no role"))?,
        }
    }
}

async fn people(broker: &Explorer, name: &str) -> Result<Vec<Named>, Failure> {
    broker.people(name.trim_start_matches('@')).await.map_err(explored)
}

fn explored(error: lastword_discord::ExploreError) -> Failure {
    Failure::refused(error.message).hint(error.hint)
}

/// Returns the only one of a name or id; `all` holds the people of the name, or every channel.
fn one(name: &str, what: &str, all: &[Named], hint: &str) -> Result<Named, Failure> {
    let plain = name.trim_start_matches(['#', '@']);
    let fits = |named: &&Named| what == "human" || named.name == plain || named.id.to_string() == plain;
    let found: Vec<&Named> = all.iter().filter(fits).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Failure::refused(format!("Discord shows the bot no {what} {plain:?}")).hint(hint)),
        several => {
            let list: Vec<String> = several
                .iter()
                .map(|n| format!("{} ({}, in {})", n.id, escape_line(&n.name), escape_line(&n.guild)))
                .collect();
            Err(Failure::refused(format!("{plain:?} is more than one {what}: {}", list.join("; ")))
                .hint("rename one, or write the id into the configuration by hand"))
        }
    }
}

impl Plan {
    /// Formats the table. The names are comments beside the ids, on one line whatever is in them.
    fn table(&self, args: &InitArgs) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let ids = |key: &str, all: &[Named], sign: &str| {
            let lines: String =
                all.iter().map(|n| format!("  \"{}\", # {sign}{}\n", n.id, escape_line(&n.name))).collect();
            format!("{key} = [\n{lines}]\n")
        };
        let mut text = "[discord]\n".to_owned();
        for (key, value) in [("api", &args.api), ("gateway", &args.gateway)] {
            if let Some(value) = value {
                text += &format!("{key} = {}\n", quoted(value));
            }
        }
        text += &ids("channels", &self.channels, "#");
        text += &ids("humans", &self.humans, "");
        let roles = self.roles.iter().map(|(role, gives)| {
            format!("\n[[discord.role]]\nid = \"{}\" # @{}\nrole = \"{gives}\"\n", role.id, escape_line(&role.name))
        });
        for bot in &self.bots {
            let file = quoted(&bot.file.to_string_lossy());
            text += &if bot.name == BROKER {
                format!("broker = {{ token_file = {file} }}\n")
            } else {
                format!("\n[[discord.bot]]\nagent = {}\ntoken_file = {file}\n", quoted(&bot.name))
            };
        }
        text += &roles.collect::<String>();
        text
    }
}

/// Puts the table in place of the one in `old`; everything else stays as it is.
fn replaced(old: &str, table: &str) -> Result<String, Failure> {
    let mut kept = String::new();
    let mut inside = false;
    for line in old.lines() {
        if line.trim_start().starts_with('[') {
            let name = line.trim().trim_matches(['[', ']', ' ']);
            inside = name == "discord" || name.starts_with("discord.") || name.starts_with("discord]");
        }
        if !inside {
            kept += line;
            kept.push('\n');
        }
    }
    let gap = if kept.trim().is_empty() { "" } else { "\n" };
    let new = format!("{}{gap}{table}", if gap.is_empty() { String::new() } else { format!("{}\n", kept.trim_end()) });
    // A table that is written in another way is not recognized; what is outside of it must come out the same.
    let others = |text: &str| -> Result<toml::Table, Failure> {
        let mut all: toml::Table = text.parse().map_err(Failure::usage)?;
        all.remove("discord");
        Ok(all)
    };
    match (others(old), others(&new)) {
        (Ok(before), Ok(after)) if before == after => Ok(new),
        _ => {
            Err(Failure::refused("the [discord] that is there can't be replaced by this command")
                .hint("edit it by hand"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_is_replaced() {
        let old = "# mine\n[limits]\ndepth_max = 3\n\n[discord]\nchannels = [1]\n[[discord.bot]]\nagent = \"a\"\n\n[notify]\nx = 1\n";
        let new = replaced(old, "[discord]\nchannels = [2]\n").unwrap();
        assert_eq!(new, "# mine\n[limits]\ndepth_max = 3\n\n[notify]\nx = 1\n\n[discord]\nchannels = [2]\n");
        assert_eq!(replaced("", "[discord]\n").unwrap(), "[discord]\n");
        for other in ["discord = { channels = [1] }\n", "discord.channels = [1]\n", "x = \"\"\"\n[discord]\n\"\"\"\n"] {
            assert!(replaced(other, "[discord]\n").is_err(), "{other}");
        }
    }

    #[test]
    fn a_name_of_several_is_refused_with_their_ids() {
        let named = |id, name: &str| Named { id, name: name.to_owned(), guild: "home".to_owned() };
        let all = [named(1, "den"), named(2, "den"), named(3, "attic")];
        assert_eq!(one("#attic", "channel", &all, "").unwrap().id, 3);
        assert_eq!(one("2", "channel", &all, "").unwrap().id, 2);
        let failure = one("den", "channel", &all, "").unwrap_err();
        assert!(failure.message.contains("1 (den, in home); 2 (den, in home)"), "{}", failure.message);
        assert!(one("cellar", "channel", &all, "").is_err());
    }
}
