"""The functions that make bash, zsh and fish ask `rstore` what Tab may write (completion.py answers)."""

from __future__ import annotations

from rstore_cli.completion import VARIABLE

_BASH = r"""# bash completion for rstore: eval "$(rstore completion bash)" in ~/.bashrc, or this text as
# ~/.local/share/bash-completion/completions/rstore
_rstore_complete() {
    local current="${COMP_WORDS[COMP_CWORD]}" kind value meaning
    local -a words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    local command="${1/#\~/$HOME}" option=""
    if [[ $current == "=" ]]; then
        option="${words[COMP_CWORD-2]}=" current=""
        words=("${words[@]:0:COMP_CWORD-2}")
    elif [[ $COMP_CWORD -gt 2 && ${words[COMP_CWORD-2]} == "=" ]]; then
        option="${words[COMP_CWORD-3]}="
        words=("${words[@]:0:COMP_CWORD-3}")
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r kind value meaning; do
        case $kind in
            plain) printf -v value %q "${value#"$option"}" && COMPREPLY+=("$value") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(VARIABLE=bash "$command" "${words[@]}" "$option$current" 2>/dev/null)
}
complete -F _rstore_complete rstore
"""

_ZSH = r"""#compdef rstore
# zsh completion for rstore: this text as _rstore in a directory of $fpath, or
# source <(rstore completion zsh) in ~/.zshrc, after compinit
_rstore() {
    local kind value meaning
    local -a plain
    while IFS=$'\t' read -r kind value meaning; do
        case $kind in
            plain) plain+=("${value//:/\\:}:$meaning") ;;
            file) _files ;;
            dir) _files -/ ;;
        esac
    done < <(VARIABLE=zsh "${(Q)words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( $#plain )) && _describe -V rstore plain
}
if [[ $funcstack[1] == _rstore ]]; then _rstore "$@"; else compdef _rstore rstore; fi
"""

_FISH = r"""# fish completion for rstore: rstore completion fish > ~/.config/fish/completions/rstore.fish
function __rstore_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    env VARIABLE=fish $words[1] $words[2..-1] "$current" 2>/dev/null | while read -l -d \t kind value meaning
        switch $kind
            case plain
                printf '%s\t%s\n' $value $meaning
            case file
                __fish_complete_path $value
            case dir
                __fish_complete_directories $value ''
        end
    end
end
complete -c rstore -f -a '(__rstore_complete)'
"""

SCRIPTS = {name: text.replace("VARIABLE", VARIABLE) for name, text in (("bash", _BASH), ("zsh", _ZSH), ("fish", _FISH))}
"""By the shell's name."""
