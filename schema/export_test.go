package schema

var Down = down
