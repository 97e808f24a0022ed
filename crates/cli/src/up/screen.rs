//! The terminal while the live table is on it. However the program ends, the terminal is given back as it was.

use crossterm::event::{Event, KeyEvent};
use crossterm::{cursor, event, execute, queue, style, terminal};
use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the table is on the terminal now. A panic may come from any thread.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over until this is dropped.
pub(crate) struct Screen(());

/// What came from the terminal.
pub(crate) enum Input {
    /// A key.
    Key(KeyEvent),
    /// Its size has changed.
    Resized,
    /// Nothing, for as long as was waited.
    Nothing,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn open() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        terminal::enable_raw_mode()?;
        SHOWN.store(true, Ordering::Release);
        let screen = Screen(());
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide, terminal::DisableLineWrap)?;
        Ok(screen)
    }

    /// Whether the table is still shown: a panic elsewhere takes it away.
    pub(crate) fn shown(&self) -> bool {
        SHOWN.load(Ordering::Acquire)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (width, height) = terminal::size().unwrap_or((80, 24));
        // Some terminals say 0 when they do not know.
        if width == 0 || height == 0 { (80, 24) } else { (usize::from(width), usize::from(height)) }
    }

    /// Shows these lines, in one write so that nothing flickers.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(4096);
        for (row, line) in lines.iter().enumerate() {
            // A terminal has fewer than 2^16 rows, and there are no more lines than rows.
            queue!(bytes, cursor::MoveTo(0, row as u16), style::Print(line))?;
            queue!(bytes, terminal::Clear(terminal::ClearType::UntilNewLine))?;
        }
        queue!(bytes, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        let mut out = io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Waits for a key, at most this long.
    pub(crate) fn wait(&self, at_most: Duration) -> io::Result<Input> {
        if !event::poll(at_most)? {
            return Ok(Input::Nothing);
        }
        Ok(match event::read()? {
            Event::Key(key) => Input::Key(key),
            Event::Resize(..) => Input::Resized,
            _ => Input::Nothing,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if SHOWN.swap(false, Ordering::AcqRel) {
        // Nothing can be done about a terminal that is gone.
        let _ =
            execute!(io::stdout(), terminal::EnableLineWrap, cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
