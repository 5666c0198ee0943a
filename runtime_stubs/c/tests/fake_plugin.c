/* Plugins that misbehave: -DHANGS never makes a client, -DOLD speaks another API, -DREFUSES has no device. */
#include <string.h>
#include <unistd.h>

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include "../third_party/pjrt_c_api.h"

static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

static PJRT_Error *create(PJRT_Client_Create_Args *args) {
  (void)args;
#ifdef HANGS
  for (;;) sleep(1);
#endif
  return (PJRT_Error *)1;
}

static void message(PJRT_Error_Message_Args *args) {
  args->message = "No visible devices\nand a second line";
  args->message_size = strlen(args->message);
}

static void destroy(PJRT_Error_Destroy_Args *args) { (void)args; }

const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  api.struct_size = sizeof api;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Client_Create = create;
  api.PJRT_Error_Message = message;
  api.PJRT_Error_Destroy = destroy;
#ifdef OLD
  api.struct_size = 200;
  api.pjrt_api_version.minor_version = 3;
#endif
  return &api;
}
