/* When a sample counts: what the machine does besides. */
#ifndef MPCORE_BENCH_QUIET_H_
#define MPCORE_BENCH_QUIET_H_

/* Waits until nobody else runs, for a moment. */
void wait_until_quiet(void);

/* Seconds that threads of this process could run but had no CPU; 0 where the system keeps no
   account. */
double seconds_waited(void);

#endif /* MPCORE_BENCH_QUIET_H_ */
