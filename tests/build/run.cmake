# run(COMMAND...): stops the test when the command fails.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${result} from: ${command}")
  endif()
endfunction()
