# Prints the tests of Swift files, as `swift test --filter` accepts them: suite/function, one a
# line.
#
# A function belongs to the type that is declared one step of indentation before it.

{ indent = match($0, /[^ ]/) - 1 }
match($0, /(struct|class|enum|actor|extension) [A-Za-z0-9_.]+/) && !/^ *\/\// {
    name = substr($0, RSTART, RLENGTH)
    sub(/.*[ .]/, "", name)
    suite[indent] = name
}
/@Test/ { isTest = 1 }
isTest && match($0, /func [A-Za-z0-9_]+/) {
    print suite[indent - 4] "/" substr($0, RSTART + 5, RLENGTH - 5)
    isTest = 0
}
