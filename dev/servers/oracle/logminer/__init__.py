"""LogMiner: a mining session, and the rows of V$LOGMNR_CONTENTS out of redo records."""
