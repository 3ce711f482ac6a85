# Prints the errors of a numbered list of `most` rules: a missing number, a rule without a link or
# without a test, a test that is not in the list that is read first.

FNR == NR { known[$0] = 1; next }

function ended() {
    if (!number) return
    if (!links) printf "rule %d has no link to the file that keeps it\n", number
    if (!tests) printf "rule %d is named by no test\n", number
}

/^[0-9]+\. / {
    ended()
    if ($1 + 0 != number + 1) printf "rule %d follows rule %d\n", $1, number
    number = $1 + 0
    links = tests = 0
}
number {
    links += gsub(/\]\(/, "&")
    text = $0
    while (match(text, /`[A-Za-z0-9_]+\/[A-Za-z0-9_]+`/)) {
        test = substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
        tests++
        if (!(test in known)) printf "rule %d: there is no test %s\n", number, test
    }
}
END {
    ended()
    if (number != most) printf "%d rules instead of %d\n", number, most
}
