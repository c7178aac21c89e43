"""Completion in bash, zsh and fish: the scripts that the shells evaluate, and the data that they exchange when Tab is pressed.

The scripts replace click's own, which have faults: bash breaks words at `:` and `=`, so URLs were cut; names with a blank were
not quoted for bash; in zsh, completing `--component=co` removed `--component=`, and a blank was added after `count=`. Importing
this module registers the shells with click. Must not know: the names that are completed.
"""

from __future__ import annotations

import os

from click import shell_completion

BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                [[ $value == *= ]] && compopt -o nospace
                [[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]] || printf -v value %%q "$value"
                COMPREPLY+=("$value")
                ;;
        esac
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local kind key text
    local -a response plain open described
    (( ! $+commands[%(prog_name)s] )) && return 1
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete %(prog_name)s)}")
    for kind key text in "${(@)response}"; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ $key == *= ]]; then open+=("$key")
                elif [[ $text == _ ]]; then plain+=("$key")
                else described+=("$key:$text")
                fi
                ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
    (( $#open )) && compadd -U -S '' -V unsorted -a open
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


@shell_completion.add_completion_class
class Bash(shell_completion.BashComplete):
    """Bash 4.4 or newer."""

    source_template = BASH
    typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words and the unfinished last word, which may be empty or inside quotes."""
        _, *words, last = shell_completion.split_arg_string(os.environ["COMP_WORDS"] + ".")
        self.typed = last[:-1]
        return words, self.typed

    def format_completion(self, item: shell_completion.CompletionItem) -> str:
        """Strip the prefix up to the last `:` or `=`: bash treats only the rest as the word."""
        broken_at = max(map(self.typed.rfind, ":="))
        return f"{item.type},{item.value.removeprefix(self.typed[: broken_at + 1])}"


class WholeWord(shell_completion.ShellComplete):
    """For shells that replace the whole word: in `--option=value` click completes only the value, so this class adds the
    option."""

    option = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, typed = super().get_completion_args()
        option, equals, _ = typed.partition("=")
        self.option = option + equals if equals and typed.startswith("--") else ""
        return words, typed

    def format_completion(self, item: shell_completion.CompletionItem) -> str:
        whole = shell_completion.CompletionItem(self.option + item.value, item.type, item.help)
        return super().format_completion(whole)


@shell_completion.add_completion_class
class Zsh(WholeWord, shell_completion.ZshComplete):
    """Zsh, when compinit has run."""

    source_template = ZSH


@shell_completion.add_completion_class
class Fish(WholeWord, shell_completion.FishComplete):
    """Fish."""
