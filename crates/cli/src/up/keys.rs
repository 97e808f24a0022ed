//! What a key does. Pure: the caller has the cluster.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a person asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Look at this region.
    Select(usize),
    /// Kill its nodes, abruptly.
    Kill,
    /// Start them again.
    Restart,
    /// Cut it off from the others, or heal it.
    Partition,
    /// Let it lead.
    Lead,
    /// Stop the cluster.
    Quit,
}

/// What this key means while the region at `selected` of `count` is looked at.
pub(crate) fn action(key: KeyEvent, selected: usize, count: usize) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        // In raw mode the terminal makes no signal of it.
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Action::Quit);
    }
    match key.code {
        KeyCode::Up => Some(Action::Select(selected.checked_sub(1).unwrap_or(count.saturating_sub(1)))),
        KeyCode::Down | KeyCode::Tab => Some(Action::Select((selected + 1) % count.max(1))),
        KeyCode::Char(digit @ '1'..='9') => {
            let index = digit as usize - '1' as usize;
            (index < count).then_some(Action::Select(index))
        }
        KeyCode::Char('k') => Some(Action::Kill),
        KeyCode::Char('r') => Some(Action::Restart),
        KeyCode::Char('p') => Some(Action::Partition),
        KeyCode::Char('l') => Some(Action::Lead),
        KeyCode::Char('q') | KeyCode::Esc => Some(Action::Quit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode) -> Option<Action> {
        action(KeyEvent::new(code, KeyModifiers::NONE), 4, 5)
    }

    #[test]
    fn arrows_go_round() {
        assert_eq!(press(KeyCode::Down), Some(Action::Select(0)));
        assert_eq!(press(KeyCode::Up), Some(Action::Select(3)));
        let up = KeyEvent::new(KeyCode::Up, KeyModifiers::NONE);
        assert_eq!(action(up, 0, 5), Some(Action::Select(4)));
    }

    #[test]
    fn numbers_select_only_what_is_there() {
        assert_eq!(press(KeyCode::Char('3')), Some(Action::Select(2)));
        assert_eq!(press(KeyCode::Char('6')), None);
        assert_eq!(press(KeyCode::Char('0')), None);
    }

    #[test]
    fn control_c_quits_and_a_release_does_nothing() {
        let c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(c, 0, 5), Some(Action::Quit));
        let k = KeyEvent::new_with_kind(KeyCode::Char('k'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(action(k, 0, 5), None);
        assert_eq!(press(KeyCode::Char('c')), None);
    }
}
