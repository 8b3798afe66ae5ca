#!/bin/sh
# A short job that says itself what it needs; options on the command line would win.
#DFRS --name short --cpu 1 --memory 64M
#DFRS --limit 2m

i=0
while [ "$i" -lt 1200000 ]; do
    i=$((i + 1))
done
echo "index ${DFRS_ARRAY_INDEX:-none} counted to $i"
