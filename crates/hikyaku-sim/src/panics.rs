//! A panic in a task of the program would end that task and nothing else: here each one is counted.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// How many there were in this thread.
pub(crate) fn count() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    PANICS.get()
}
