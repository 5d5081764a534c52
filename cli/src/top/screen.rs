//! The terminal: in raw mode and on its second screen while `top` runs, and as it was before however that ends.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// What a panic tells, and to whom.
type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send + 'static>;

/// The terminal while it is ours.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
    hook: Arc<Hook>,
}

impl Screen {
    /// Takes it. A panic gives it back before it is told, or nobody would see what it says.
    pub(crate) fn open() -> io::Result<Self> {
        let hook: Arc<Hook> = Arc::new(panic::take_hook());
        let before = Arc::clone(&hook);
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        let opened = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match opened {
            Ok(terminal) => Ok(Self { terminal, hook }),
            Err(error) => {
                restore();
                panic::set_hook(Box::new(move |info| hook(info)));
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        // While a panic unwinds the hook can't be changed, and then it has told already.
        if !std::thread::panicking() {
            let before = Arc::clone(&self.hook);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Gives the terminal back. There is nobody to tell where that fails.
fn restore() {
    let _left = execute!(stdout(), LeaveAlternateScreen, Show);
    let _cooked = disable_raw_mode();
}

/// The wall clock, in ms since the Unix epoch: how long ago something was is told against it.
#[expect(clippy::disallowed_methods, reason = "what a person sees of time is their clock; no rule depends on it")]
pub(crate) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
