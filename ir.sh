#!/bin/bash
# ir.sh TREE WHAT N0 N1 [bare]: thousand instructions per unit between N0 and N1
export PYTHONPATH=/tmp/prof/$1 PYTHONHASHSEED=0 GC=${GC:-off}
g(){ valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null /work/main/.venv/bin/python /tmp/prof/w.py $1 $2 $3 2>&1 | awk '/I +refs/{gsub(",","",$NF);print $NF}'; }
a=$(g $2 $3 $5); b=$(g $2 $4 $5); echo "$1 $2 $5: $(( (b-a)/($4-$3)/100 ))" | sed 's/\(.\)$/.\1 kIr/'
