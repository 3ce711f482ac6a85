// What only tests share.
