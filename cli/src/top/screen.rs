//! The terminal: in raw mode and on its alternate screen while `top` runs, restored however that ends.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// A panic hook.
type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send + 'static>;

/// The terminal, while `top` owns it.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
    hook: Arc<Hook>,
}

impl Screen {
    /// Takes the terminal. A panic restores it before it is reported; otherwise its message would be lost.
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
        // The hook can't be changed while a panic unwinds, and it has already reported then.
        if !std::thread::panicking() {
            let before = Arc::clone(&self.hook);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Restores the terminal. A failure is ignored: it can't be reported anywhere.
fn restore() {
    let _left = execute!(stdout(), LeaveAlternateScreen, Show);
    let _cooked = disable_raw_mode();
}

/// Returns the system clock in ms since the Unix epoch, to which relative times are formatted.
#[expect(clippy::disallowed_methods, reason = "humans see their own clock; no rule depends on it")]
pub(crate) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
