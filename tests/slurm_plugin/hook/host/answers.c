/* Reads bodies of answers as hexadecimal lines; prints what the compiled shim makes of each, or "-". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

int main(void)
{
	static char line[4 * MAX_REPLY];
	static struct answer answer;

	while (fgets(line, sizeof(line), stdin)) {
		size_t length = strcspn(line, "\n") / 2;
		char *body = malloc(length); /* exactly as long, so that a sanitizer sees a byte too far */

		for (size_t i = 0; i < length; i++) {
			char pair[3] = {line[2 * i], line[2 * i + 1], 0};
			body[i] = (char) strtoul(pair, NULL, 16);
		}
		if (parse_answer(body, length, &answer))
			printf("%d %u %s;%s\n", (int) answer.verdict, answer.site_factor, answer.qos, answer.message);
		else
			printf("-\n");
		free(body);
	}
	return 0;
}
