# Prints the sentences of Markdown pages that have more than `most` words: file, line of the
# paragraph, count and beginning. Code blocks are left out. A heading, an item of a list and a cell
# of a table end a sentence; punctuation in a code span, or in the address of a link, does not.

function tell(sentence, words, count) {
    gsub(/^ +| +$/, "", sentence)
    count = split(sentence, words, / +/)
    if (count > most) printf "%s:%d: %d words: %.60s…\n", page, begun, count, sentence
}

# Returns the paragraph without the punctuation in its code spans that could end a sentence.
function plain(text, before, span) {
    before = ""
    while (match(text, /`[^`]*`/)) {
        span = substr(text, RSTART, RLENGTH)
        gsub(/[.?!]/, "", span)
        before = before substr(text, 1, RSTART - 1) span
        text = substr(text, RSTART + RLENGTH)
    }
    return before text
}

function flush(rest) {
    rest = plain(paragraph)
    paragraph = ""
    gsub(/\]\([^)]*\)/, "]", rest)
    gsub(/<!--[^>]*-->/, "", rest)
    while (match(rest, /[.?!][)"*]*( +|$)/)) {
        tell(substr(rest, 1, RSTART))
        rest = substr(rest, RSTART + RLENGTH)
    }
    if (rest != "") tell(rest)
}

FNR == 1 { flush(); page = FILENAME; fenced = 0 }
/^ *```/ { flush(); fenced = !fenced; next }
fenced { next }
/^ *$/ { flush(); next }
/^#/ || /^ *[-*] / || /^ *[0-9]+\. / { flush() }
/^ *\|/ {
    flush()
    # An escaped bar does not separate cells.
    gsub(/\\\|/, "")
    cells = split($0, cell, "|")
    for (number = 1; number <= cells; number++) {
        begun = FNR
        paragraph = cell[number]
        flush()
    }
    next
}
{
    if (paragraph == "") begun = FNR
    sub(/^ *([-*]|[0-9]+\.) +/, "")
    paragraph = paragraph " " $0
}
END { flush() }
