//! The configuration: flags, then `LASTWORD_*`, then `lastword.toml`, then defaults.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lastword_broker::archive::ArchivePolicy;
use lastword_client::Trust;
use lastword_facts::Limits;
use lastword_facts::policy::Policy;
use lastword_programs::Prices;
use lastword_server::{BasePath, CHECKPOINT_EVERY_FACTS, ConfiguredSchedule, Tls};
use lastword_wire::{ClaimRule, NewSchedule};
use toml::Spanned;

use crate::config_file::{Configuration, ConsoleTable};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::notify;
use crate::oidc;
use crate::team::Member;
use crate::telemetry::TelemetryTable;
use crate::text_file;
use crate::tls::{certificate, trust};
use crate::token_source::TokenSource;

/// The configuration file in the team's folder, read if `--config` names no other.
pub(crate) const CONFIG_FILE: &str = "lastword.toml";
/// The default data directory.
pub(crate) const DATA_DIR: &str = ".lastword";
/// The address that the server listens on, and clients connect to, by default.
pub(crate) const LISTEN: &str = "127.0.0.1:7171";

/// The flags that every command has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Print JSON instead of text.
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Configuration file [default: lastword.toml beside the data directory, if there is one].
    #[arg(long, global = true, value_name = "FILE", env = "LASTWORD_CONFIG", hide_env_values = true)]
    #[arg(help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory [default: .lastword, here or in a folder above, or in the main worktree of a git repository].
    #[arg(long, global = true, value_name = "DIR", env = "LASTWORD_DATA", hide_env_values = true)]
    #[arg(help_heading = "Global options")]
    pub(crate) data: Option<PathBuf>,
    /// Address of the server [default: the one running on the data directory].
    #[arg(long, global = true, value_name = "URL", env = "LASTWORD_URL", hide_env_values = true)]
    #[arg(help_heading = "Global options")]
    pub(crate) url: Option<String>,
    /// Fingerprint of the server's certificate, sha256:HEX, or a file that lists some [default: that of the server running
    /// on the data directory].
    #[arg(long, global = true, value_name = "PIN", env = "LASTWORD_TLS_PIN", hide_env_values = true)]
    #[arg(help_heading = "Global options")]
    pub(crate) tls_pin: Option<String>,
    /// Certificates in PEM that verify the server's, in place of the system's.
    #[arg(long, global = true, value_name = "FILE", env = "LASTWORD_TLS_CA", hide_env_values = true)]
    #[arg(help_heading = "Global options")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// File with the token to authenticate with [env: LASTWORD_TOKEN=the token, LASTWORD_TOKEN_FILE].
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The settings of this run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The data directory.
    pub(crate) data: PathBuf,
    /// Whether a flag, a variable or the configuration names it.
    pub(crate) data_is_named: bool,
    /// The address to listen on.
    pub(crate) listen: Option<String>,
    /// Host names that clients may use for the server.
    pub(crate) hosts: Vec<String>,
    /// The path under which a reverse proxy serves the server.
    pub(crate) path: BasePath,
    /// Failed authentications of an address in a minute, if configured.
    pub(crate) auth_failures_max: Option<u64>,
    /// When the oldest part of the log moves to the archive.
    pub(crate) archive: ArchivePolicy,
    /// The server's address, if one is named.
    pub(crate) url: Option<String>,
    /// How clients verify the server's certificate, if that is named.
    pub(crate) trust: Option<Trust>,
    /// The certificate that the server of this configuration has.
    pub(crate) tls: Option<Tls>,
    /// The source of the token.
    pub(crate) token: TokenSource,
    /// The configuration file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// `FILE:LINE` of each limit that the file sets, and of `profile`, `observe` and `enforce`.
    pub(crate) set_at: BTreeMap<String, String>,
    /// The limits in force: the file's values over the defaults.
    pub(crate) limits: Limits,
    /// The policy of held calls.
    pub(crate) policy: Policy,
    /// Agents whose MCP client a human uses directly, and which human.
    pub(crate) seats: BTreeMap<String, String>,
    /// Who may claim certain paths, and how.
    pub(crate) claims: Vec<ClaimRule>,
    /// Agents that `serve --with-agents` runs.
    pub(crate) team: Vec<Member>,
    /// The prices of models: the file's over the built-in ones.
    pub(crate) prices: Prices,
    /// Channels that notify humans of pending decisions.
    pub(crate) notify: Vec<notify::NotifyTable>,
    /// Schedules that the server sets, each with its place in the file.
    pub(crate) schedules: Vec<ConfiguredSchedule>,
    /// The console as people reach it.
    pub(crate) console: ConsoleTable,
    /// The provider by which humans sign in.
    pub(crate) oidc: Option<oidc::OidcTable>,
    /// The facts after which the server keeps a checkpoint; 0 keeps one only when it stops.
    pub(crate) checkpoint_every_facts: u64,
    /// The agents that other systems may ask.
    pub(crate) a2a: lastword_a2a::A2aSettings,
    /// Where spans go, if anywhere.
    pub(crate) telemetry: Option<TelemetryTable>,
    /// The bridge to Discord, unparsed.
    pub(crate) discord: Option<toml::Table>,
}

impl Settings {
    /// Merges flags, environment and file, in this order of precedence.
    pub(crate) fn resolve(global: &Global, environment: &Environment) -> Result<Self, Failure> {
        let path = global.config.clone().unwrap_or_else(|| environment.team.join(CONFIG_FILE));
        let text = read_file(&path, global.config.is_some())?;
        Self::of_text(&path, text, global, environment)
    }

    /// Merges flags, environment and the text of the file at `path`; `None` if there is no file.
    pub(crate) fn of_text(
        path: &Path,
        text: Option<String>,
        global: &Global,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let file = Configuration::parse(path, text.as_deref().unwrap_or_default())?;
        let place = |at: usize| place(path, text.as_deref().unwrap_or_default(), at);
        let set_at = file.set_at(place);
        let base = path.parent().map(Path::to_owned).unwrap_or_default();
        let limits = file.limits()?;
        let policy = file.policy(&limits)?;
        // Paths in the file are relative to it; those of flags and variables to the working directory.
        let relative = |path: PathBuf| base.join(path);
        let in_place = |member: Member| Member {
            cwd: relative(member.cwd.clone()),
            remote_token_file: member.remote_token_file.map(relative),
            ..member
        };
        let notify = notify::tables(file.notify, &base)?;
        let team = file.agent.into_iter().map(in_place).collect();
        let scheduled = |entry: Spanned<NewSchedule>| {
            let at = place(entry.span().start);
            ConfiguredSchedule { at, schedule: entry.into_inner() }
        };
        if file.auth_failures_max.is_some_and(|max| !(1..=60_000).contains(&max)) {
            return Err(Failure::usage("auth_failures_max is from 1 to 60000, in a minute"));
        }
        file.console.settings()?;
        let archive = file.archive.policy()?;
        let schedules = file.schedule.into_iter().map(scheduled).collect();
        let token = token_source(global, environment, file.token_file.map(relative));
        let tls = certificate(file.tls, file.tls_cert.map(relative), file.tls_key.map(relative))
            .map_err(|failure| Failure { message: format!("{}: {}", path.display(), failure.message), ..failure })?;
        let pin_in_place =
            |pin: String| if pin.contains(':') { pin } else { relative(pin.into()).display().to_string() };
        let trust = match trust(global.tls_pin.clone(), global.tls_ca.clone())? {
            Some(named) => Some(named),
            // The file's are those of the file's address.
            None if global.url.is_some() && global.url != file.url => None,
            None => trust(file.tls_pin.map(pin_in_place), file.tls_ca.map(relative))?,
        };
        Ok(Self {
            data_is_named: global.data.is_some() || file.data.is_some(),
            data: global.data.clone().or(file.data.map(relative)).unwrap_or_else(|| environment.team.join(DATA_DIR)),
            listen: file.listen,
            hosts: file.hosts,
            path: file.path,
            auth_failures_max: file.auth_failures_max,
            archive,
            a2a: file.a2a.settings()?,
            telemetry: file.telemetry.map(|table| table.checked(&base)).transpose()?,
            url: global.url.clone().or(file.url),
            trust,
            tls,
            token,
            file: text.map(|_| path.to_owned()),
            set_at,
            limits,
            policy,
            seats: file.seats,
            claims: file.claim,
            team,
            prices: Prices::new(file.prices),
            notify,
            schedules,
            console: file.console,
            oidc: file.oidc.map(|table| table.at(&base)),
            checkpoint_every_facts: file.checkpoint_every_facts.unwrap_or(CHECKPOINT_EVERY_FACTS),
            discord: file.discord,
        })
    }
}

/// Returns where the token is: as a flag says, else a variable, else the configuration file.
fn token_source(global: &Global, environment: &Environment, configured: Option<PathBuf>) -> TokenSource {
    match (&global.token_file, &environment.token, &environment.token_file) {
        (Some(path), ..) | (None, None, Some(path)) => TokenSource::File(path.clone()),
        (None, Some(text), _) => TokenSource::Text(text.clone()),
        (None, None, None) => configured.map_or(TokenSource::Implicit, TokenSource::File),
    }
}

/// Reads the configuration file; only the default one may be missing.
fn read_file(path: &Path, named: bool) -> Result<Option<String>, Failure> {
    match text_file::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if !named && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
}

/// Returns `FILE:LINE` of a byte of the file.
pub(crate) fn place(path: &Path, text: &str, at: usize) -> String {
    format!("{}:{}", path.display(), text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lastword_facts::limits::Profile;

    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, Global) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.toml");
        fs::write(&path, text).unwrap();
        (dir, Global { config: Some(path), ..Global::default() })
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let (dir, global) =
            written("data = \"there\"\nurl = \"http://file\"\n[limits]\ndepth_max = 3\n[seats]\na = \"b\"\n");
        let settings = Settings::resolve(&global, &Environment::default()).unwrap();
        assert_eq!(settings.data, dir.path().join("there"), "relative to the file");
        assert_eq!(settings.url.as_deref(), Some("http://file"));
        assert_eq!((settings.limits.depth_max, settings.limits.hops_max), (3, Limits::default().hops_max));
        assert_eq!(settings.listen, None);
        assert_eq!(settings.seats, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let global = Global { url: Some("http://flag".into()), data: Some("here".into()), ..global };
        let settings = Settings::resolve(&global, &Environment::default()).unwrap();
        assert_eq!((settings.url.as_deref(), settings.data), (Some("http://flag"), PathBuf::from("here")));
    }

    #[test]
    fn a_token_file_flag_wins_over_variables_and_they_over_the_file() {
        let (dir, mut global) = written("token_file = \"toml.token\"");
        let mut environment = Environment::default();
        let token = |global: &Global, environment: &Environment| Settings::resolve(global, environment).unwrap().token;
        assert_eq!(token(&Global::default(), &environment), TokenSource::Implicit);
        assert_eq!(token(&global, &environment), TokenSource::File(dir.path().join("toml.token")));
        environment.token_file = Some("env.token".into());
        assert_eq!(token(&global, &environment), TokenSource::File("env.token".into()));
        environment.token = Some("secret".into());
        assert_eq!(token(&global, &environment), TokenSource::Text("secret".into()));
        global.token_file = Some("flag.token".into());
        assert_eq!(token(&global, &environment), TokenSource::File("flag.token".into()));
    }

    #[test]
    fn a_file_that_says_what_nobody_knows_is_refused_by_name() {
        for (text, word) in [
            ("colour = 1", "colour"),
            ("[limits]\ndepth_maximum = 3", "depth_max"),
            ("[limits]\nwindow_ms = 0", "window_ms is 0"),
            ("observe = [\"nonsense\"]", "nonsense"),
            ("observe = [\"grant_messages\"]", "grant_messages"),
            ("data = ", "data"),
            ("path = \"lw\"", "isn't a path such as /lw"),
            ("[console]\naddress = \"lastword.example\"", "isn't an address such as"),
            ("[console]\naddress = \"https://lastword.example/lw\"", "`path` is the path"),
            ("[console]\npasskey = \"console\"", "needs the console's address"),
            ("[console]\npasskey = \"always\"\naddress = \"https://192.0.2.1\"", "has no name"),
            ("[console]\npasskey = \"console\"\naddress = \"http://lastword.example\"", "isn't https"),
            ("path = \"/agents\"", "a path of the server itself"),
            ("profile = \"short\"", "strict"),
            ("enforce = [\"grant_messages\"]", "always enforced"),
            ("enforce = [\"cycle\"]\nobserve = [\"cycle\"]", "both"),
            ("[[schedule]]\nname = \"nightly\"\nzone = \"UTC\"", "zone"),
            ("[[schedule]]\nname = \"nightly\"\ncron = \"0 2 * * *\"\nbody = \"x\"", "to"),
            ("[[approval]]\ntool = \"Bash\"\ntier = \"none\"", "tier.none"),
        ] {
            let (_dir, global) = written(text);
            let failure = Settings::resolve(&global, &Environment::default()).unwrap_err();
            let said = format!("{} {}", failure.message, failure.hint.unwrap_or_default());
            assert!(said.contains(word), "{text}: {said}");
            assert_eq!(failure.exit, crate::failure::Exit::Usage);
        }
    }

    #[test]
    fn typed_prompts_can_be_off() {
        let (_dir, global) = written("[sessions]\ntyped = \"off\"\n[limits]\ntyped_grants_per_hour_max = 3");
        let known = Settings::resolve(&global, &Environment::default()).unwrap();
        assert_eq!((known.limits.typed_grants_per_hour_max, Limits::default().typed_grants_per_hour_max), (0, 30));
    }

    #[test]
    fn a_profile_sets_limits_and_what_is_set_by_hand_wins() {
        let of = |text: &str| {
            let (_dir, global) = written(text);
            Settings::resolve(&global, &Environment::default()).unwrap().limits
        };
        let strict = of("profile = \"strict\"");
        assert_eq!(strict, Limits::default());
        assert!(strict.observed.observes("no_progress"));
        let long = of("profile = \"long\"");
        assert_eq!((long.depth_max, long.turns_soft_max, long.turns_hard_max), (39, 80, 200));
        assert_eq!((long.task_requests_max, long.grant_messages_max, long.grant_turns_max), (64, 512, 800));
        assert!(!long.observed.observes("no_progress"));
        let own = of("profile = \"long\"\nobserve = [\"no_progress\"]\n[limits]\ndepth_max = 7");
        assert_eq!((own.depth_max, own.grant_turns_max, own.profile), (7, 800, Profile::Long));
        assert!(own.observed.observes("no_progress"));
        assert!(!of("enforce = [\"no_progress\"]").observed.observes("no_progress"));
    }

    #[test]
    fn where_a_limit_is_set_is_known_to_the_line() {
        let (dir, global) = written("# mine\nobserve = [\n  \"pair_rate\",\n]\n\n[limits]\ndepth_max = 3\n");
        let set_at = Settings::resolve(&global, &Environment::default()).unwrap().set_at;
        let at = |line| format!("{}:{line}", dir.path().join("some.toml").display());
        assert_eq!(set_at, BTreeMap::from([("depth_max".to_owned(), at(7)), ("observe".to_owned(), at(2))]));
    }

    #[test]
    fn a_schedule_is_read_with_the_line_where_it_stands() {
        let (dir, global) = written(
            "# mine\n[[schedule]]\nname = \"a\"\ncron = \"0 2 * * *\"\nto = \"x\"\nbody = \"y\"\n\n[[schedule]]\n\
             name = \"b\"\ncron = \"0 3 * * *\"\ntime_zone = \"Europe/Berlin\"\nto = \"#z\"\nbody = \"y\"\nref = \"B-{n}\"\n",
        );
        let schedules = Settings::resolve(&global, &Environment::default()).unwrap().schedules;
        let told: Vec<_> = schedules.iter().map(|entry| (entry.at.as_str(), entry.schedule.name.as_str())).collect();
        let at = |line| format!("{}:{line}", dir.path().join("some.toml").display());
        assert_eq!(told, [(at(2).as_str(), "a"), (at(8).as_str(), "b")]);
        let [_, second] = &schedules[..] else { panic!("{schedules:?}") };
        let given = (second.schedule.time_zone.as_deref(), second.schedule.reference.as_deref());
        assert_eq!(given, (Some("Europe/Berlin"), Some("B-{n}")));
    }

    #[test]
    fn a_config_file_that_is_named_must_exist() {
        let global = Global { config: Some("/nowhere/lastword.toml".into()), ..Global::default() };
        assert!(Settings::resolve(&global, &Environment::default()).is_err());
    }
}
