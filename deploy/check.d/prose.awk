# Prints the prose of Markdown pages, one line of the page a line, with its file and number: without
# fenced blocks, generated tables (between two lines `<!-- declared -->`) and the content of code
# spans. With -v spans=1 prints the code spans instead, one a line.

FNR == 1 { fenced = generated = 0 }
/^ *```/ { fenced = !fenced; next }
/^<!-- declared -->/ { generated = !generated; next }
fenced || generated || /words:ok/ { next }
spans {
    text = $0
    while (match(text, /`[^`]+`/)) {
        print FILENAME ":" FNR ":" substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
    }
    next
}
{
    gsub(/`[^`]*`/, "``")
    print FILENAME ":" FNR ":" $0
}
