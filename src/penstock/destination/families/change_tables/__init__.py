"""``mode: append`` of lakes and warehouses: a table of every change in the place of its rows."""
