// The room's design note comes here, atop its main file.
