"""The statements that a session runs: DDL, DML, PL/SQL, and ALTER SESSION."""
