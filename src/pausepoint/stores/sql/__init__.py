"""The verbs that all stores in SQL databases share, on a given connection.

Each noun has its own file, with the functions that read it and those that write it. The statements that they run are in
the `queries.sql` of each database: a connection has the texts of its own database, by name. Everything with a digest or
checksum is verified when it is read.

A function that writes runs inside a transaction of the writer. It checks first and writes afterwards. If it raises, it
has written nothing, so others can share its transaction. It can run again after a rollback.
"""
