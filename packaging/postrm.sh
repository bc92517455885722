#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/tandem
fi
