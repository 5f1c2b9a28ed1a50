"""The paper's tables and figures as studies: one module computes, one judges and writes, and records hold all of it."""
