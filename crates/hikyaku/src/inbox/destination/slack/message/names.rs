//! Names that a template uses and nothing bears: found when it is read, and not when a row comes that takes their branch.

use minijinja::machinery::{Instruction, get_compiled_template};
use minijinja::{Environment, ErrorKind, Template, Value};

/// What can be called although nobody has set it: a loop that goes into itself.
const LOOP: &str = "loop";

/// Says which filter, test or function there is not, and in which line.
pub(super) fn check(environment: &Environment<'_>, template: &Template<'_, '_>) -> Result<(), String> {
    let instructions = &get_compiled_template(template).instructions;
    let all = || (0..).map_while(|index| Some((index, instructions.get(index)?)));
    let is_set = |name: &str| all().any(|(_, one)| matches!(one, Instruction::StoreLocal(local) if *local == name));
    let is_global = |name: &str| environment.globals().any(|(global, _)| global == name);
    for (index, instruction) in all() {
        let unknown = match instruction {
            Instruction::ApplyFilter(name, ..) if lacks_filter(environment, name) => format!("filter {name:?}"),
            Instruction::PerformTest(name, ..) if lacks_test(environment, name) => format!("test {name:?}"),
            Instruction::CallFunction(name, _) if *name != LOOP && !is_set(name) && !is_global(name) => {
                format!("function {name:?}")
            }
            _ => continue,
        };
        let line = instructions.get_line(index).map_or_else(String::new, |line| format!(" in line {line}"));
        return Err(format!("the template is wrong{line}: there is no {unknown}"));
    }
    Ok(())
}

fn lacks_filter(environment: &Environment<'_>, name: &str) -> bool {
    let tried = environment.empty_state().apply_filter(name, &[Value::UNDEFINED]);
    tried.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter)
}

fn lacks_test(environment: &Environment<'_>, name: &str) -> bool {
    let tried = environment.empty_state().perform_test(name, &[Value::UNDEFINED]);
    tried.is_err_and(|error| error.kind() == ErrorKind::UnknownTest)
}
